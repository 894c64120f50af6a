from ._inlining_for_size import InliningForSize as InliningForSize
from ._layout import Feature as Feature
from ._layout import Layout as Layout
from ._policy import Action as Action
from ._policy import Answer as Answer
from ._policy import Policy as Policy
from ._policy import PolicyLike as PolicyLike
from ._policy import as_policy as as_policy
from ._problem import Problem as Problem
from ._regalloc_eviction import RegallocEviction as RegallocEviction
from ._regalloc_priority import RegallocPriority as RegallocPriority
from ._registry import problem_named as problem_named
from ._registry import problems as problems
from ._vocabulary import Vocabulary as Vocabulary

# isort: split
# For other packages of this project; not documented, and may change.

from ._call_features import CALL_FEATURES as CALL_FEATURES
from ._call_features import MOST_SHARE as MOST_SHARE
from ._call_features import NO_CUTOFF as NO_CUTOFF
from ._call_features import SHARE_STEPS as SHARE_STEPS
from ._fit import Fit as Fit
from ._fit import record_of as record_of
from ._inlining_features import DERIVED as DERIVED
from ._inlining_features import FEATURES as FEATURES
from ._inlining_for_size import DEFAULT_ADVICE as DEFAULT_ADVICE
from ._inlining_for_size import default as default
from ._inlining_for_size import never as never
from ._layout import layout_differences as layout_differences
from ._layout import row_shape as row_shape
from ._policy import SentPolicy as SentPolicy
from ._policy import WatchedPolicy as WatchedPolicy
from ._policy import in_turn as in_turn
from ._problem import HASH_SUFFIX as HASH_SUFFIX
from ._regalloc_eviction import ASKING_POSITION as ASKING_POSITION
from ._regalloc_eviction import POSITIONS as POSITIONS
from ._registry import DEFAULT as DEFAULT
from ._registry import option_name as option_name
from ._vocabulary import ARGUMENTS as ARGUMENTS
from ._vocabulary import MAX_BYTES as MAX_BYTES
from ._vocabulary import MAX_DIMENSION as MAX_DIMENSION
from ._vocabulary import OPCODES as OPCODES
from ._vocabulary import PRESETS as PRESETS
from ._vocabulary import SECTIONS as SECTIONS
from ._vocabulary import TYPES as TYPES

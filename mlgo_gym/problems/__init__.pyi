from ._inlining_for_size import InliningForSize as InliningForSize
from ._observations import observation_array as observation_array
from ._problem import Action as Action
from ._problem import Feature as Feature
from ._problem import Problem as Problem
from ._regalloc_eviction import RegallocEviction as RegallocEviction
from ._regalloc_priority import RegallocPriority as RegallocPriority

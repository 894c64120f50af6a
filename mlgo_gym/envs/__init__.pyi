from ._allocation_env import AllocationEnv as AllocationEnv
from ._compilation_env import CompilationEnv as CompilationEnv
from ._making import make_env as make_env
from ._observation_space import observed as observed
from ._per_decision import PerDecisionReward as PerDecisionReward
from ._wrappers import ActionMaskObservation as ActionMaskObservation
from ._wrappers import DefaultAdviceObservation as DefaultAdviceObservation
from ._wrappers import FloatVectorObservation as FloatVectorObservation
from ._wrappers import LogScaleAction as LogScaleAction
from ._wrappers import SignedLogObservation as SignedLogObservation

# isort: split
# For other packages of this project; not documented, and may change.

from ._drawn import RENDER_MODES as RENDER_MODES
from ._drawn import check_render_mode as check_render_mode
from ._drawn import rendered as rendered
from ._registration import register_envs as register_envs

from ._recorder import check_recording as check_recording
from ._recorder import record_program as record_program
from ._recording import Recording as Recording
from ._schedules import oracle_s as oracle_s
from ._schedules import played as played
from ._schedules import schedule_named as schedule_named
from ._tier_env import SAMPLE_RECORDING as SAMPLE_RECORDING
from ._tier_env import TierUpEnv as TierUpEnv
from ._tier_replay import Replay as Replay

# isort: split
# For other packages of this project; not documented, and may change.

from ._schedules import TierPolicy as TierPolicy
from ._tier_env import TierUpVectorEnv as TierUpVectorEnv
from ._tier_env import load_recordings as load_recordings

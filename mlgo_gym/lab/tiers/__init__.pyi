from ._check import check_recording as check_recording
from ._env import SAMPLE_RECORDING as SAMPLE_RECORDING
from ._env import TierUpEnv as TierUpEnv
from ._record import record_program as record_program
from ._recording import Recording as Recording
from ._replay import Replay as Replay
from ._schedules import oracle_s as oracle_s
from ._schedules import played as played
from ._schedules import schedule_named as schedule_named

# isort: split
# For other packages of this project; not documented, and may change.

from ._env import load_recordings as load_recordings
from ._schedules import TierPolicy as TierPolicy
from ._vector import TierUpVectorEnv as TierUpVectorEnv

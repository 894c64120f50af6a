from ._contract import ContractError as ContractError
from ._env import check_env as check_env
from ._executor import check_executor as check_executor
from ._measure import check_measure as check_measure
from ._runner import check_runner as check_runner
from ._runner import round_trips_us as round_trips_us

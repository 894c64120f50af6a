from ._deployment import deploy as deploy
from ._log import RolloutLog as RolloutLog
from ._rollout import Attempt as Attempt
from ._rollout import Decision as Decision
from ._rollout import ModuleReport as ModuleReport
from ._rollout import rollout as rollout

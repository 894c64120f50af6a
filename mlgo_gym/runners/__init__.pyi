from ._base import MLModelRunner as MLModelRunner
from ._base import NoInferenceModelRunner as NoInferenceModelRunner
from ._base import ScriptedRunner as ScriptedRunner
from ._interactive import InteractiveModelRunner as InteractiveModelRunner
from ._interactive import PipeHost as PipeHost
from ._load import runner_factory as runner_factory
from ._model_runners import ModelUnderTrainingRunner as ModelUnderTrainingRunner
from ._model_runners import ReleaseModeModelRunner as ReleaseModeModelRunner
from ._models import Model as Model
from ._models import ModelAgent as ModelAgent
from ._models import model_policies as model_policies
from ._policy import BatchedPolicy as BatchedPolicy
from ._policy import RunnerPolicy as RunnerPolicy
from ._policy import WorkerPolicy as WorkerPolicy

# isort: split
# For other packages of this project; not documented, and may change.

from ._base import RunnerFactory as RunnerFactory
from ._interactive import DEFAULT_DEADLINE_S as DEFAULT_DEADLINE_S
from ._load import IN_PROCESS as IN_PROCESS
from ._load import MODES as MODES
from ._load import RELEASE as RELEASE
from ._load import check_model as check_model
from ._models import check_files as check_files
from ._models import native_policy as native_policy
from ._models import native_runner as native_runner
from ._models import problem_of_models as problem_of_models
from ._models import settings_of_models as settings_of_models
from .grpc._wire import check_certificate as check_certificate
from .grpc._wire import grpc as grpc

from ._batched import BatchedPolicy as BatchedPolicy
from ._models import Model as Model
from ._models import model_policies as model_policies
from ._worker import WorkerPolicy as WorkerPolicy

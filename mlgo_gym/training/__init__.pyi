from ._from_torch import VectorNormalization as VectorNormalization
from ._from_torch import export_torch_mlp as export_torch_mlp
from ._train import TRAINERS as TRAINERS
from ._train import Trained as Trained
from ._train import Watcher as Watcher
from ._train import train as train

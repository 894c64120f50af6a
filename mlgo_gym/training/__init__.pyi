from ._from_torch import VectorNormalization as VectorNormalization
from ._from_torch import export_torch_mlp as export_torch_mlp

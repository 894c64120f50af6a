from ._from_torch import VectorNormalization as VectorNormalization
from ._from_torch import export_torch as export_torch
from ._train import TRAINERS as TRAINERS
from ._train import Trained as Trained
from ._train import Watcher as Watcher
from ._train import train as train

# isort: split
# For other packages of this project; not documented, and may change.

from ._advantage import labels_in as labels_in
from ._data import Data as Data
from ._data import check_lasting as check_lasting
from ._data import describe as describe
from ._data import successes as successes
from ._distillation import MOST_CERTAIN as MOST_CERTAIN
from ._distillation import AdvantageConfig as AdvantageConfig
from ._distillation import TeacherConfig as TeacherConfig
from ._distillation import fit_teacher as fit_teacher
from ._distillation import labels_of as labels_of
from ._distillation import log_odds as log_odds
from ._export import load_network as load_network
from ._export import save_model as save_model
from ._networks import InliningNetwork as InliningNetwork
from ._train import NothingToLearnError as NothingToLearnError
from ._train import check_trainer_settings as check_trainer_settings
from ._train import described_trainers as described_trainers
from ._train import imported as imported
from ._train import provenance as provenance
from ._train import trainer_names as trainer_names
from ._validation import Validation as Validation
from ._validation import validate_all as validate_all

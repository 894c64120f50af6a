from ._evaluate import Setting as Setting
from ._front import evaluate as evaluate
from ._summary import Scored as Scored

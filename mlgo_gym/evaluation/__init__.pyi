from ._evaluate import Setting as Setting
from ._evaluate import evaluate as evaluate
from ._summary import Scored as Scored

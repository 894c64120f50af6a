from ._facts import describe_modules as describe_modules
from ._verification import verify_corpus as verify_corpus

# isort: split
# For other packages of this project; not documented, and may change.

from ._building import Builders as Builders
from ._facts import ModuleFacts as ModuleFacts
from ._facts import describe_module as describe_module
from ._functions import file_name as file_name
from ._functions import split_functions as split_functions
from ._split import Group as Group
from ._split import Split as Split
from ._split import check_split_output as check_split_output
from ._split import split_corpora as split_corpora
from ._split import write_split as write_split
from ._split_options import UNITS as UNITS
from ._split_options import SplitOptions as SplitOptions
from ._verification import CheckOutcome as CheckOutcome
from ._verification import Verdict as Verdict

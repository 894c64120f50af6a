from ._extensions import Addition as Addition
from ._extensions import Extension as Extension

# isort: split
# For other packages of this project; not documented, and may change.

from ._search import inlining_problem_of as inlining_problem_of
from ._search import searched as searched
from ._train import Shown as Shown
from ._values import file_or_uri as file_or_uri
from ._values import place as place
from ._writing import PLOT_ENDINGS as PLOT_ENDINGS
from ._writing import make_folder as make_folder
from ._writing import save_figure as save_figure
from ._writing import save_figures as save_figures
from ._writing import write_all as write_all
from ._writing import writing as writing
from .show._grid import Cell as Cell
from .show._grid import Grid as Grid
from .show._grid import Row as Row
from .show._grid import amount as amount
from .show._grid import change as change
from .show._grid import narrow_table as narrow_table
from .show._grid import ratio as ratio
from .show._listing import Listing as Listing
from .show._listing import Text as Text
from .show._names import source_name as source_name
from .show._output import Output as Output
from .show._page import Content as Content
from .show._page import Section as Section
from .show._page import as_page as as_page

DESCRIPTION: str
EXAMPLE: str
COMMANDS: dict[str, str]

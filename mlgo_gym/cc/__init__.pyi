# isort: split
# For other packages of this project; not documented, and may change.

from ._build_commands import build_commands as build_commands
from ._build_commands import driver_settings as driver_settings
from ._project import RECORDS as RECORDS
from ._project import Project as Project
from ._project import count_lto as count_lto
from ._project import database_of as database_of
from ._project import known_build as known_build
from ._project import open_project as open_project
from ._project import project_of_corpus as project_of_corpus
from ._project_file import ALL as ALL
from ._project_file import localize_project as localize_project
from ._project_file import mark_plain as mark_plain
from ._project_file import read_facts as read_facts
from ._project_file import write_project as write_project
from ._traces import Build as Build
from ._traces import compile_objects as compile_objects
from ._traces import open_build as open_build
from ._traces import unrepeatable as unrepeatable
from ._traces import write_answers as write_answers

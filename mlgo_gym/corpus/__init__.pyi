from ._corpus import SAMPLE_CORPUS as SAMPLE_CORPUS
from ._corpus import Corpus as Corpus
from ._corpus import Module as Module
from ._functions import FunctionSize as FunctionSize
from ._functions import function_sizes as function_sizes
from ._inlined import FunctionCode as FunctionCode
from ._inlined import InlinedCode as InlinedCode
from ._inlined import function_code as function_code
from ._packages import ModuleKey as ModuleKey
from ._packages import Packages as Packages
from ._packages import PackagesLike as PackagesLike

# isort: split
# For other packages of this project; not documented, and may change.

from ._corpus import OTHER_LANGUAGE as OTHER_LANGUAGE
from ._corpus import ModuleFile as ModuleFile
from ._corpus import language_of as language_of
from ._corpus import read_files as read_files
from ._functions import comdat_groups as comdat_groups
from ._functions import function_symbols as function_symbols
from ._functions import read_elf as read_elf
from ._packages import SPLITS as SPLITS
from ._packages import check_not_final as check_not_final
from ._packages import corpus_folders as corpus_folders
from ._packages import corpus_info as corpus_info
from ._packages import final_corpora as final_corpora
from ._packages import join_corpora as join_corpora
from ._packages import shortest_names as shortest_names
from ._packages import split_of as split_of

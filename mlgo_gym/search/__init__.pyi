from ._attribution import NamingCompiler as NamingCompiler
from ._attribution import disjoint_flips as disjoint_flips
from ._attribution import effects_of as effects_of
from ._corpus_search import search_corpus as search_corpus
from ._goal import SearchSetting as SearchSetting
from ._oracle import Oracle as Oracle

# isort: split
# For other packages of this project; not documented, and may change.

from ._attribution import Flip as Flip
from ._attribution import FlipEffect as FlipEffect
from ._attribution import NamedCompilation as NamedCompilation
from ._attribution import NamedDecision as NamedDecision
from ._attribution import Wanted as Wanted
from ._attribution import flipped as flipped
from ._attribution import single_flips as single_flips
from ._corpus_search import ModuleSearch as ModuleSearch
from ._goal import check_limit as check_limit
from ._goal import check_most_text as check_most_text
from ._goal import reward_beside as reward_beside

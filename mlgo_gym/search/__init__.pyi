from ._attribution import disjoint_flips as disjoint_flips
from ._attribution import effects_of as effects_of
from ._call_sites import NamingCompiler as NamingCompiler
from ._corpus_search import search_corpus as search_corpus
from ._goal import SearchSetting as SearchSetting
from ._oracle import Oracle as Oracle

from ._corpus import SAMPLE_CORPUS as SAMPLE_CORPUS
from ._corpus import Corpus as Corpus
from ._corpus import Module as Module
from ._packages import ModuleKey as ModuleKey
from ._packages import Packages as Packages
from ._packages import PackagesLike as PackagesLike

from ._corpus import SAMPLE_CORPUS as SAMPLE_CORPUS
from ._corpus import Corpus as Corpus
from ._corpus import Module as Module
from ._packages import hold_out as hold_out

from .base import TensorSpec as TensorSpec
from .corpus import SAMPLE_CORPUS as SAMPLE_CORPUS
from .corpus import Corpus as Corpus
from .corpus import Module as Module
from .llvm import Compilation as Compilation
from .llvm import CompilationResult as CompilationResult
from .llvm import CompileOptions as CompileOptions
from .llvm import Compiler as Compiler
from .problems import InliningForSize as InliningForSize
from .problems import RegallocEviction as RegallocEviction
from .problems import RegallocPriority as RegallocPriority
from .rollout import Trace as Trace
from .stream import TrainingLogReader as TrainingLogReader
from .stream import TrainingLogWriter as TrainingLogWriter

__version__: str

from ._compilation import Compilation as Compilation
from ._compiler import Compiler as Compiler
from ._compiler import options_of as options_of
from ._result import CompilationResult as CompilationResult
from ._result import Product as Product
from ._task import Task as Task
from .command._options import CompileOptions as CompileOptions

from ._builds import BuildComparison as BuildComparison
from ._builds import compare_builds as compare_builds
from ._functions import FunctionSize as FunctionSize
from ._functions import function_sizes as function_sizes
from ._inlined import FunctionCode as FunctionCode
from ._inlined import InlinedCode as InlinedCode
from ._inlined import function_code as function_code

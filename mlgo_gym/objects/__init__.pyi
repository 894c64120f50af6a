from ._builds import BuildComparison as BuildComparison
from ._builds import compare_builds as compare_builds
from ._functions import FunctionSize as FunctionSize
from ._functions import function_sizes as function_sizes

"""Evaluation: how much better or worse than LLVM's own heuristic policies are, and how sure it is.

What modules come to under policies is added up by `Scored`, with bootstrap intervals.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

"""Evaluation: how much better or worse than LLVM's own heuristic policies are, and how sure it is.

`evaluation._evaluate` compiles packages of modules under policies, `linked_text` counts
what a linker would keep, `summary` adds up with bootstrap intervals.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

"""Evaluation: how much better or worse than LLVM's own heuristic policies are, and how sure it is.

Packages of modules are compiled under policies, and what came out is added up (`Scored`), with
bootstrap intervals.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

"""The embedded compiler: LLVM inside llvmlite, in worker processes.

A worker imports this package and must stay small: names are loaded when they are first used.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

"""Problems: the heuristics that LLVM hands out, as frozen values."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

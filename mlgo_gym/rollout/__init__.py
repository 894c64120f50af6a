"""Rollouts: policies over the modules of a corpus, each beside LLVM's own heuristic.

Measures say what compilations are compared by; traces record them, and replay them to the byte.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

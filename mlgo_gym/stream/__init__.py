"""LLVM's decisions as text and bytes: events, training logs and the channel to a host."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

"""When to compile: tiers of a JIT, recorded once from real programs and replayed exactly."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

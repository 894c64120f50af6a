"""Explanations: where a model decides differently, and the effect on the code."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

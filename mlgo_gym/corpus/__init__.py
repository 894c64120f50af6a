"""Corpora: modules with their command lines, the packages they come in, the sample, and objects."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

"""Profiles: how often the code of a corpus's modules runs, collected and put into the bitcode."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

"""Savings of other answers: many flips in one compilation, and an oracle on forks."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

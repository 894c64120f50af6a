"""Contracts as executable suites: of runners, environments, measures and executors, anybody's."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

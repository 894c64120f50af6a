"""Workloads: programs of a corpus's objects, run in a sandbox, and meters of what they take."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

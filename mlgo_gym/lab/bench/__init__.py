"""Benchmark suites: policies run over fixed modules, submissions, and what they come to."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

"""What forks are for: exact advantages, beam search, and a search oracle."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

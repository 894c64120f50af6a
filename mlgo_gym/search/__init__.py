"""What other answers save: many flips in one compilation, and a search oracle on forks."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

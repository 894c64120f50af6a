"""``mlgo-cc``, ``mlgo-c++`` and ``mlgo-launch``: clang with a model's advice.

The driver is a small C program (``native/``), since Python takes longer to start than clang takes
for a small file. It is compiled once, by the clang that it will run; so is each model, as a shared
library. `cc._prepare` does both, into the user's cache.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

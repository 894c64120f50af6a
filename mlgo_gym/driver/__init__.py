"""``mlgo-cc`` and ``mlgo-c++``: clang with a model's advice.

The driver is a small C program (``native/``), since Python takes longer to start than clang takes
for a small file. It is compiled once, by the clang that it will run; so is each model, as a shared
library. `driver._prepare` does both, into the user's cache.
"""

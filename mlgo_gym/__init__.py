"""LLVM's machine-learning guided heuristics as Gymnasium environments.

Importing this package registers its environments and loads neither LLVM nor TensorFlow; names are
imported when they are first used. What stands in an ``__init__.pyi`` is public, in every package;
the rest is private.
"""

import importlib
import os

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

__version__ = "0.1.0"

if "MLGO_GYM_WORKER" not in os.environ:  # a worker process needs the compiler alone
    importlib.import_module("mlgo_gym.envs._registration").register_envs()

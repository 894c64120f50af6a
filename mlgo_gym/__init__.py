"""LLVM's machine-learning guided heuristics as Gymnasium environments.

Importing this package registers its environments with Gymnasium and loads neither LLVM nor
TensorFlow; names are imported when they are first used. What stands in an ``__init__.pyi`` is
public, in every package; the rest is private.
"""

import importlib
import os
import sys

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

__version__ = "0.1.0"

# The errors name this module as theirs. Cloudpickle, which Ray uses, copies a class whose module is
# not loaded, and no `except` catches a copy.
importlib.import_module("mlgo_gym.errors")

# Gymnasium takes several times as long to import as the rest of this package. A worker process and
# the program `mlgo-gym`, whose name is known before any module of its own, make no environments.
_is_program = bool(sys.argv) and sys.argv[0].endswith("/mlgo-gym")
if not _is_program and "MLGO_GYM_WORKER" not in os.environ:
    importlib.import_module("mlgo_gym.envs._registration").register_envs()

"""LLVM's machine-learning guided heuristics as Gymnasium environments.

Importing this package registers its environments and loads neither LLVM nor TensorFlow; the
names below are imported when they are first used.
"""

from __future__ import annotations

import importlib
import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mlgo_gym.corpus import SAMPLE_CORPUS as SAMPLE_CORPUS
    from mlgo_gym.corpus import Corpus as Corpus
    from mlgo_gym.corpus import Module as Module
    from mlgo_gym.llvm.compilation import Compilation as Compilation
    from mlgo_gym.llvm.compilation import CompilationResult as CompilationResult
    from mlgo_gym.llvm.compiler import Compiler as Compiler
    from mlgo_gym.llvm.options import CompileOptions as CompileOptions
    from mlgo_gym.problems import InliningForSize as InliningForSize
    from mlgo_gym.problems import RegallocEviction as RegallocEviction
    from mlgo_gym.problems import RegallocPriority as RegallocPriority
    from mlgo_gym.tensor_spec import TensorSpec as TensorSpec
    from mlgo_gym.trace import Trace as Trace
    from mlgo_gym.training_log import TrainingLogReader as TrainingLogReader
    from mlgo_gym.training_log import TrainingLogWriter as TrainingLogWriter

__version__ = "0.1.0"

_HOMES = {
    "SAMPLE_CORPUS": "mlgo_gym.corpus",
    "Compilation": "mlgo_gym.llvm.compilation",
    "CompilationResult": "mlgo_gym.llvm.compilation",
    "CompileOptions": "mlgo_gym.llvm.options",
    "Compiler": "mlgo_gym.llvm.compiler",
    "Corpus": "mlgo_gym.corpus",
    "InliningForSize": "mlgo_gym.problems",
    "Module": "mlgo_gym.corpus",
    "RegallocEviction": "mlgo_gym.problems",
    "RegallocPriority": "mlgo_gym.problems",
    "TensorSpec": "mlgo_gym.tensor_spec",
    "Trace": "mlgo_gym.trace",
    "TrainingLogReader": "mlgo_gym.training_log",
    "TrainingLogWriter": "mlgo_gym.training_log",
}

__all__ = [*_HOMES, "__version__"]  # noqa: PLE0604


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)


if "MLGO_GYM_WORKER" not in os.environ:  # a worker process needs the compiler alone
    importlib.import_module("mlgo_gym.envs.registration").register_envs()

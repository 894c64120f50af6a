"""Release mode: a policy's TFLite graph as native code, made by the LLVM inside llvmlite.

`read_tflite` turns a file into a `Graph`, `lower_graph` turns that into LLVM IR, `compile_model`
does both and makes an object of it, which can be bound to buffers in this process;
`mlgo_gym.native.freeze` leaves it on disk with a C header and a description. Neither TensorFlow nor
TFLite nor a linker takes part.

The names below are imported when they are first used: the compiling process needs none of them.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mlgo_gym.native.freeze import FrozenFiles as FrozenFiles
    from mlgo_gym.native.freeze import load_frozen as load_frozen
    from mlgo_gym.native.graph import Graph as Graph
    from mlgo_gym.native.lowering import lower_graph as lower_graph
    from mlgo_gym.native.model import NativeModel as NativeModel
    from mlgo_gym.native.model import compile_model as compile_model
    from mlgo_gym.native.tflite_reader import read_tflite as read_tflite

_HOMES = {
    "FrozenFiles": "freeze",
    "Graph": "graph",
    "NativeModel": "model",
    "compile_model": "model",
    "load_frozen": "freeze",
    "lower_graph": "lowering",
    "read_tflite": "tflite_reader",
}

__all__ = list(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)

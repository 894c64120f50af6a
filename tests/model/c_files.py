"""Compiles the C of a model, and calls it in this process."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from pathlib import Path
from typing import Any

from mlgo_gym.model._emit_c import emit_c
from tests.model.agreement import Array

COMPILERS = {
    name: found for name in ("gcc", "clang-22") if (found := shutil.which(name)) is not None
}
STRICT = ["-std=c11", "-O3", "-Wall", "-Wextra", "-Wshadow", "-Werror", "-pedantic"]


def compile_shared(compiler: str, source: Path, *flags: str) -> Path:
    """A shared library of a source file."""
    target = source.with_name(f"{source.stem}-{compiler}-{len(flags)}.so")
    command = [COMPILERS[compiler], *STRICT, *flags, "-fPIC", "-shared", str(source), "-lm"]
    subprocess.run([*command, "-o", str(target)], check=True)
    return target


class CModel:
    """The function in a shared library, on fixed buffers."""

    def __init__(self, library: Path, inputs: list[Array], outputs: list[Array]) -> None:
        self._evaluate = ctypes.CDLL(str(library)).policy_evaluate
        self.outputs = outputs
        self._arguments = [_pointers(inputs), _pointers(outputs)]

    def call(self) -> int:
        return int(self._evaluate(*self._arguments))


def _pointers(arrays: list[Array]) -> Any:
    return (ctypes.c_void_p * len(arrays))(*(array.ctypes.data for array in arrays))


def emitted(model: Path, folder: Path) -> Path:
    return emit_c(model, folder, name="policy").source

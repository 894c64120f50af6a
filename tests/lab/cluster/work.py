"""What tests have done on a cluster: states and functions that workers can import.

Nodes have no TensorFlow, which the tests themselves import.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any, NoReturn

from mlgo_gym.corpus._corpus import Module
from mlgo_gym.corpus._packages import ModuleKey
from mlgo_gym.errors import CompilerCrashError, ModelError, ModuleError, PolicyError
from mlgo_gym.llvm._compiler import Compiler


class Desk:
    """A state that needs no LLVM."""

    def interrupt(self) -> None: ...

    def close(self) -> None: ...


def double(_: Desk, item: int) -> int:
    return 2 * item


def process(_: Desk, item: int) -> int:
    """Which worker has the item; slow enough that nobody gets all."""
    del item
    time.sleep(0.05)
    return os.getpid()


def picky(_: Desk, item: int) -> int:
    if item == 1:
        raise ModuleError("one", "expected another")
    if item == 2:
        raise CompilerCrashError("two", "gone", exit_status=-9, stderr_tail=())
    return 2 * item


def deadly(_: Desk, item: int) -> int:
    """The third item takes its worker with it."""
    if item == 3:
        os._exit(1)
    return 2 * item


def unloadable() -> Any:
    raise ModelError("mine", "made for znver9: this CPU lacks avx9")


def refuse(_: Desk, item: int) -> NoReturn:
    raise PolicyError(f"Traceback\nValueError: {item}")


def compiled(compiler: Compiler, module: Module) -> int:
    return compiler.compile_module(module).text_size_bytes


def named(_: Desk, read: tuple[ModuleKey, Module]) -> tuple[str, Module]:
    return read[0].name, read[1]


class Mark:
    """Leaves a file for each item."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __call__(self, _: Desk, item: int) -> None:
        (self._folder / str(item)).touch()

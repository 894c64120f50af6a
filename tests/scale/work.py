"""What tests have done on a cluster: states and functions that workers can import."""

from __future__ import annotations

import os
import time
from typing import Any, NoReturn

from mlgo_gym.errors import CompilerCrashError, ModelError, ModuleError, PolicyError


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


def sleep(_: Desk, item: int) -> int:
    time.sleep(0 if item == 0 else 600)
    return item

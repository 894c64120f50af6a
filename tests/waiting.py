"""Time in tests: waits have no bound but the test's own, and a deadline is had at once."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path

from mlgo_gym.llvm._compiler import Compiler

__all__ = ["remove", "time_is_up", "wait_for"]


def wait_for(condition: Callable[[], object]) -> None:
    while not condition():
        time.sleep(0.005)


def remove(folder: Path) -> None:
    """Take away a folder into which children of a process that was killed may still write."""

    def is_gone() -> bool:
        shutil.rmtree(folder, ignore_errors=True)
        return not folder.exists()

    wait_for(is_gone)


def time_is_up(compiler: Compiler) -> None:
    """Of the compilation that runs: nothing has to be awaited but what never comes."""
    assert compiler._current is not None
    compiler._current.charge(compiler._current.remaining_s)

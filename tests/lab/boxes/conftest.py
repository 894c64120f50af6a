"""Corpora of programs, and programs whose functions are boxed."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from mlgo_gym.lab.boxes import BoxedProgram
from mlgo_gym.lab.boxes._tracing import Tracee
from tests.lab.programs.conftest import MakeCorpus, corpus, sha256

__all__ = ["corpus"]  # a fixture

MakeBoxed = Callable[..., BoxedProgram]


def described(said: str = "", more: str = "", timeout_s: int = 5) -> str:
    return f"""
sources = ["main.c"]
[workload.w]
about = "a program of a test"
timeout_s = {timeout_s}
stdout_sha256 = "{sha256(said)}"
{more}
"""


@pytest.fixture(scope="session", autouse=True)
def _traces() -> None:
    """Containers may let no process be traced."""
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        Tracee.attach(process.pid)
    except OSError as error:
        pytest.skip(f"needs ptrace: {error.strerror}; give a container SYS_PTRACE")
    finally:
        process.kill()
        process.communicate()


@pytest.fixture
def boxed(corpus: MakeCorpus) -> Iterator[MakeBoxed]:
    """The program of one module's C and of what drives it."""
    made: list[BoxedProgram] = []

    def make(module: str, main: str, **settings: Any) -> BoxedProgram:
        own = corpus(described(**settings), {"m.c": module}, main)
        made.append(BoxedProgram.of(own, "w"))
        return made[-1]

    yield make
    for each in made:
        each.close()

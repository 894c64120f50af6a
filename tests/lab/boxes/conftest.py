"""Corpora of programs, and programs whose functions are boxed."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from mlgo_gym.lab.boxes import BoxedProgram
from tests.lab.programs.conftest import MakeCorpus, corpus, sha256

__all__ = ["corpus"]  # a fixture

MakeBoxed = Callable[..., BoxedProgram]


def described(said: str = "", more: str = "") -> str:
    return f"""
sources = ["main.c"]
[workload.w]
about = "a program of a test"
timeout_s = 5
stdout_sha256 = "{sha256(said)}"
{more}
"""


@pytest.fixture
def boxed(corpus: MakeCorpus) -> Iterator[MakeBoxed]:
    """The program of one module's C and of what drives it."""
    made: list[BoxedProgram] = []

    def make(module: str, main: str, said: str = "", more: str = "") -> BoxedProgram:
        made.append(BoxedProgram.of(corpus(described(said, more), {"m.c": module}, main), "w"))
        return made[-1]

    yield make
    for each in made:
        each.close()

"""What tests share: the sample corpus, a compiler, and LLVM's own tools."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from typing import NoReturn

import pytest

from mlgo_gym.corpus._corpus import SAMPLE_CORPUS, Corpus
from mlgo_gym.llvm._compiler import Compiler


@pytest.fixture(scope="session")
def sample() -> Corpus:
    return Corpus.load(SAMPLE_CORPUS)


@pytest.fixture(scope="session")
def small(sample: Corpus) -> Corpus:
    """Three modules of few decisions, for tests that compile a lot."""
    return Corpus(sample.folder, ("json_write.c", "hash_map.c", "digest.c"))


@pytest.fixture
def compiler() -> Iterator[Compiler]:
    with Compiler(timeout_s=120) as compiler:
        yield compiler


def require(tool: str, package: str) -> str:
    """The path of one of LLVM's own tools; without it CI fails and other machines skip."""
    path = shutil.which(tool)
    if path is None:
        lacking(f"needs {tool}: apt-get install {package}")
    return path


def lacking(reason: str) -> NoReturn:
    """Skip on a developer's machine, fail where everything is meant to be there."""
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)


@pytest.fixture
def opt22() -> str:
    return require("opt-22", "llvm-22")


@pytest.fixture
def llc22() -> str:
    return require("llc-22", "llvm-22")


@pytest.fixture
def clang22() -> str:
    return require("clang-22", "clang-22")

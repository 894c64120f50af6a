"""What tests share: the sample corpus, a compiler, LLVM's own tools, and a check for leftovers."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import psutil
import pytest
from hypothesis import settings

from mlgo_gym.corpus._corpus import SAMPLE_CORPUS, Corpus
from mlgo_gym.llvm._compiler import Compiler

# How long one example takes is the machine's business; a whole test has pytest's own limit.
settings.register_profile("mlgo-gym", deadline=None)
settings.load_profile("mlgo-gym")


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


@pytest.fixture(autouse=True)
def own_temporary_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Each test gets a temporary folder of its own, and must leave it and the process clean."""
    folder = tmp_path_factory.mktemp("tmp")
    old, tempfile.tempdir = tempfile.tempdir, str(folder)
    descriptors = _descriptors()
    yield folder
    tempfile.tempdir = old
    left = [each.cmdline() for each in psutil.Process().children() if _is_worker(each)]
    assert not left, "worker processes left over"
    assert not [each.name for each in folder.glob("mlgo-gym-*")], "FIFOs left over"
    assert _descriptors() <= descriptors + 2, "file descriptors left over"


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


def _descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def _is_worker(process: psutil.Process) -> bool:
    try:
        return any("mlgo_gym.llvm.process._child" in argument for argument in process.cmdline())
    except psutil.NoSuchProcess:
        return False

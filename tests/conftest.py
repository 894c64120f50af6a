"""What tests share: the sample corpus, a compiler, and LLVM's own tools."""

from __future__ import annotations

import contextlib
import os
import resource
import shutil
from collections.abc import Iterator, Sequence
from typing import Any, NoReturn

import pytest

from mlgo_gym.corpus._corpus import SAMPLE_CORPUS, Corpus
from mlgo_gym.llvm._compiler import Compiler


@pytest.fixture(scope="session")
def sample() -> Corpus:
    return Corpus.load(SAMPLE_CORPUS)


@pytest.fixture(scope="session")
def small(sample: Corpus) -> Corpus:
    """Three modules of few decisions, for tests that compile a lot."""
    return Corpus(sample.folder, ("json_write.c", "hash_map.c", "frame_stream.c"))


class _Warm:
    """A compiler for many tests: its worker stays, unless a test ended or replaced it."""

    compiler: Compiler | None = None
    _pid: int | None = None

    def start(self) -> Compiler:
        if self.compiler is None:
            self.compiler = Compiler(timeout_s=120)
            self.compiler.compile_module(Corpus.load(SAMPLE_CORPUS)["frame_stream.c"])
            self._pid = self.compiler.worker_pid
        return self.compiler

    def settle(self) -> None:
        """After a test, while its folder is there: what is unfinished ends, another worker goes."""
        if self.compiler and self.compiler._current:
            self.compiler._current.close()
        if self.compiler and self.compiler.worker_pid != self._pid:
            self.close()

    def close(self) -> None:
        if self.compiler:
            self.compiler.close()
        self.compiler = None


_WARM = _Warm()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Start the worker before the test that is the first to use it, whom it would be left over."""
    if "compiler" in getattr(item, "fixturenames", ()):
        _WARM.start()


def pytest_sessionfinish() -> None:
    _WARM.close()


@pytest.fixture
def compiler() -> Iterator[Compiler]:
    """A compiler that other tests have used, and will; tests of workers have one of their own."""
    yield _WARM.start()
    _WARM.settle()


@pytest.fixture
def own_compiler() -> Iterator[Compiler]:
    with Compiler(timeout_s=120) as compiler:
        yield compiler


def one_in(count: int, cases: Sequence[Any]) -> list[Any]:
    """Cases that differ in little: one in so many is of the fast tier, the others are ``e2e``."""
    return [
        pytest.param(case, marks=() if index % count == 0 else pytest.mark.e2e)
        for index, case in enumerate(cases)
    ]


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


@contextlib.contextmanager
def free_descriptors(count: int) -> Iterator[None]:
    """Let this process open so many more files, and no more."""
    probes = [os.open(os.devnull, os.O_RDONLY) for _ in range(count + 1)]
    for probe in probes:
        os.close(probe)
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (probes[-1], limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


@contextlib.contextmanager
def no_room() -> Iterator[None]:
    """Let this process write no byte to a regular file."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)

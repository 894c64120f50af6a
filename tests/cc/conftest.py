"""``mlgo-cc`` as users run it: the scripts that the wheel installs, in front of a real clang-22."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType

import pytest

from mlgo_gym import __version__
from mlgo_gym.cc._kept import is_kept
from mlgo_gym.cc._prepare import PROGRAMS
from tests.conftest import require

ROOT = Path(__file__).parents[2]
MODELS = ROOT / "tests" / "models"
SOURCE = "static int g(int x) { return x * x; } int f(int x) { return g(x) + g(x + 1); }\n"
# LLVM's own answers, asked for to the end: the code must be plain clang's.
AS_DEFAULT = {
    "MLGO_INLINING_MODEL": str(MODELS / "default"),
    "MLGO_SIZE_INCREASE_THRESHOLD": "1e9",
    "MLGO_STRICT": "1",
}

# With it the tests' driver is built with sanitizers (test_sanitizers.py runs them so).
SANITIZED = "SANITIZED_DRIVER"
SANITIZERS = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-g")

NOTHING: Mapping[str, str] = MappingProxyType({})
CHANNEL = {"MLGO_IN_PROCESS": "0"}
WAYS = {"in-process": NOTHING, "channel": CHANNEL}
"""How LLVM is answered: in clang's own process, or over FIFOs by a process of ours."""

Argument = str | bytes | Path


@dataclass(frozen=True)
class Driver:
    """Runs the driver and plain clang alike."""

    clang: str
    environment: Mapping[str, str] = field(repr=False)
    scripts: Path = ROOT / "scripts"

    def command(self, *arguments: Argument, cxx: bool = False) -> list[Argument]:
        return [self.scripts / ("mlgo-c++" if cxx else "mlgo-cc"), *arguments]

    def program(self) -> Path:
        """The native driver, once it was made."""
        cache = self.environment["MLGO_CACHE"]
        return Path(f"{cache}/cc-{__version__}{self.scripts}/bin/mlgo-cc")

    def run(
        self,
        *arguments: Argument,
        cwd: Path,
        stdin: bytes = b"",
        cxx: bool = False,
        settings: Mapping[str, str] = NOTHING,
    ) -> subprocess.CompletedProcess[bytes]:
        return self._run(self.command(*arguments, cxx=cxx), cwd, stdin, settings)

    def plain(
        self, *arguments: Argument, cwd: Path, stdin: bytes = b"", cxx: bool = False
    ) -> subprocess.CompletedProcess[bytes]:
        name = self.clang.replace("clang-", "clang++-") if cxx else self.clang
        return self._run([name, *arguments], cwd, stdin, NOTHING)

    def _run(
        self, command: Sequence[Argument], cwd: Path, stdin: bytes, settings: Mapping[str, str]
    ) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(
            command,
            cwd=cwd,
            input=stdin,
            capture_output=True,
            env={**self.environment, **settings},
            check=False,
        )


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest) -> Mapping[str, str]:
    return WAYS[str(request.param)]


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """A folder with ``f.c``."""
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "f.c").write_text(SOURCE)
    return folder


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cache")
    if os.environ.get(SANITIZED):
        build_sanitized(folder, tmp_path_factory.mktemp("compiler"))
    return folder


def build_sanitized(cache: Path, programs: Path) -> None:
    """The driver as `prepare` makes it, by a compiler that adds the sanitizers."""
    compiler = programs / "clang"  # the first that `prepare` looks for
    real = require("clang-22", "clang-22")
    compiler.write_text(f'#!/bin/sh\nexec {real} {" ".join(SANITIZERS)} "$@"\n')
    compiler.chmod(0o755)
    prepare = [sys.executable, "-P", "-m", "mlgo_gym.cc._prepare", "driver"]
    environment = {**os.environ, "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}"}
    target = f"{cache}/cc-{__version__}{ROOT / 'scripts'}"
    subprocess.run([*prepare, target], env=environment, check=True, timeout=120)


@pytest.fixture
def driver(clang22: str, cache: Path, own_temporary_folder: Path) -> Driver:
    kept = {name: text for name, text in os.environ.items() if not name.startswith("MLGO_")}
    return Driver(
        clang22,
        kept
        | {
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "MLGO_CACHE": str(cache),
            "MLGO_CLANG": clang22,
            "MLGO_CONFIG": os.devnull,
            "TMPDIR": str(own_temporary_folder),
        },
    )


UNADVISED = b"; compiled by plain clang\n"
NEVER: Mapping[str, str] = MappingProxyType({"MLGO_INLINING_MODEL": str(MODELS / "never")})


def elsewhere(driver: Driver, cache: Path) -> Driver:
    return replace(driver, environment={**driver.environment, "MLGO_CACHE": str(cache)})


def folder_of(driver: Driver) -> Path:
    return driver.program().parents[1]


def free_port() -> int:
    """A port of this machine that nobody listens at now."""
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def only(driver: Driver, pattern: str) -> Path:
    (found,) = folder_of(driver).glob(pattern)
    return found


def scraps(driver: Driver) -> list[str]:
    """What is there besides what is kept."""
    folder = folder_of(driver)
    found = [*folder.iterdir(), *folder.glob("*/*")]
    known = {"bin", "kept", *PROGRAMS}
    return [each.name for each in found if each.name not in known and not is_kept(each)]


def compile_file(driver: Driver, work: Path, settings: Mapping[str, str]) -> tuple[bytes, bytes]:
    """The object and what was said; the driver may not succeed without an object."""
    (work / "f.o").unlink(missing_ok=True)
    done = driver.run("-O2", "-c", "f.c", cwd=work, settings=settings)
    assert done.returncode == 0, done.stderr
    return (work / "f.o").read_bytes(), done.stderr


@dataclass(frozen=True)
class Objects:
    """What the driver may make of the file: with the model, and without."""

    never: bytes
    plain: bytes

    def allow(self, made: bytes, words: bytes) -> bool:
        advised = (made, words) == (self.never, b"")
        return advised or (made == self.plain and words.endswith(UNADVISED))


@pytest.fixture
def objects(never: bytes, plain: bytes) -> Objects:
    return Objects(never, plain)


@pytest.fixture
def plain(driver: Driver, work: Path) -> bytes:
    assert driver.plain("-O2", "-c", "f.c", cwd=work).returncode == 0
    return (work / "f.o").read_bytes()


@pytest.fixture
def never(driver: Driver, work: Path, plain: bytes) -> bytes:
    made, words = compile_file(driver, work, NEVER)
    assert (made != plain, words) == (True, b"")
    return made


@pytest.fixture(scope="session")
def used(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("used") / "cache"


@pytest.fixture
def own(driver: Driver, cache: Path, used: Path, work: Path, never: bytes) -> Driver:
    """With a copy of a cache that has been used for one model."""
    assert never
    if not used.exists():
        shutil.copytree(cache, used)
        for each in (folder_of(elsewhere(driver, used)) / "kept").iterdir():
            if each.name not in {"inside.so", "sources"}:
                each.unlink()
        compile_file(elsewhere(driver, used), work, NEVER)
    target = work.parent / "own"
    shutil.copytree(used, target)
    return elsewhere(driver, target)

"""Fixtures of the corpus_tools tests: the real compiler, and real recipes with local sdists."""

from __future__ import annotations

import hashlib
import io
import re
import subprocess
import sysconfig
import tarfile
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from corpus_tools import Clang, Recipe, find_clang
from tests.conftest import lacking, require

MakeRecipe = Callable[..., Recipe]
WriteTar = Callable[[Path, Mapping[str, str]], Path]


@pytest.fixture(scope="session")
def clang22() -> Clang:
    return find_clang(require("clang-22", "clang-22"))


@dataclass(frozen=True)
class Traced:
    """A clang whose calls to the system are written down."""

    clang: Clang
    log: Path

    def calls(self) -> list[tuple[str, str, str]]:
        """Name, path and the rest of each call that succeeded."""
        lines = self.log.read_text(errors="replace").splitlines() if self.log.exists() else []
        found = (re.match(r'\d+ +(\w+)\([^"]*"([^"]*)"(.*)', line) for line in lines)
        return [(m[1], m[2], m[3]) for m in found if m and not re.search("= -1 E[A-Z]+", m[3])]

    def programs(self) -> set[str]:
        return {path for call, path, _ in self.calls() if call.startswith("execve")}

    def opened(self) -> set[str]:
        return {path for call, path, _ in self.calls() if call.startswith("open")}

    def changed(self) -> set[str]:
        """What was made, written or removed, outside temporary folders of corpus_tools' own."""
        looks = ("execve", "access", "faccessat", "stat", "lstat", "newfstatat", "statx", "statfs")
        reads = (*looks, "readlink", "readlinkat", "getcwd", "chdir")
        return {
            path
            for call, path, rest in self.calls()
            if not call.startswith(reads)
            and not (call.startswith("open") and not re.search("O_WRONLY|O_RDWR|O_CREAT", rest))
            and not re.match(f"{tempfile.gettempdir()}/corpus_tools\\.|/dev/null$", path)
        }


@pytest.fixture
def traced(clang22: Clang, tmp_path: Path) -> Traced:
    program, log = tmp_path / "traced", tmp_path / "traced.log"
    options = "-f -qq --seccomp-bpf -s 500 -e trace=%file"
    strace = require("strace", "strace")
    program.write_text(f'#!/bin/sh\nexec {strace} {options} -A -o {log} {clang22.path} "$@"\n')
    program.chmod(0o755)
    return Traced(replace(clang22, path=program), log)


@pytest.fixture(scope="session")
def llvm_objcopy() -> Path:
    return Path(require("llvm-objcopy-22", "llvm-22"))


@pytest.fixture(scope="session")
def python_headers() -> Path:
    folder = Path(sysconfig.get_path("include"))
    if not (folder / "Python.h").is_file():
        lacking("needs Python.h: apt-get install python3-dev")
    return folder


@pytest.fixture(scope="session")
def disassemble() -> Callable[[bytes], str]:
    """LLVM assembly of bitcode."""
    opt = require("opt-22", "llvm-22")

    def run(bitcode: bytes) -> str:
        command = [opt, "-S", "-o", "-"]
        process = subprocess.run(command, input=bitcode, capture_output=True, check=True)
        return process.stdout.decode("utf-8", "surrogateescape")

    return run


@pytest.fixture(scope="session")
def write_tar() -> WriteTar:
    return _write_tar


@pytest.fixture(scope="session")
def tiny_recipe() -> MakeRecipe:
    return _tiny_recipe


def _write_tar(path: Path, files: Mapping[str, str]) -> Path:
    with tarfile.open(path, "w:gz") as tar:
        for name, text in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(text.encode())
            tar.addfile(member, io.BytesIO(text.encode()))
    return path


@pytest.fixture
def make_sdist(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MakeRecipe:
    """Put an sdist of package ``tiny`` into a folder that pip is told of, and nothing else."""
    folder = tmp_path / "links"
    folder.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))

    def make(files: Mapping[str, str], **changes: object) -> Recipe:
        sdist = _write_tar(
            folder / "tiny-1.0.tar.gz", {f"tiny-1.0/{name}": text for name, text in files.items()}
        )
        digest = hashlib.sha256(sdist.read_bytes()).hexdigest()
        return _tiny_recipe(**{"sha256": digest, **changes})

    return make


def _tiny_recipe(**changes: object) -> Recipe:
    values: dict[str, object] = {
        "name": "tiny",
        "package": "tiny",
        "version": "1.0",
        "sdist": "tiny-1.0.tar.gz",
        "sha256": "0" * 64,
        "split": "train",
        "language": "C",
        "license": "MIT",
        "globs": ("*.c",),
    }
    return Recipe(**{**values, **changes})  # type: ignore[arg-type]

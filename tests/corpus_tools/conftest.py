"""Fixtures of the corpus_tools tests: the real compiler, and real recipes with local sdists."""

from __future__ import annotations

import hashlib
import io
import subprocess
import sysconfig
import tarfile
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from corpus_tools import Clang, Recipe, find_clang
from tests.conftest import lacking, require

MakeRecipe = Callable[..., Recipe]
WriteTar = Callable[[Path, Mapping[str, str]], Path]


@pytest.fixture(scope="session")
def clang22() -> Clang:
    return find_clang(require("clang-22", "clang-22"))


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

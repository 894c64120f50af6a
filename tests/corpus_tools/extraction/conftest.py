"""Real builds with the real toolchain, and LLVM's own tools to compare with."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from corpus_tools import read_command
from corpus_tools.object_file import ObjectFile
from mlgo_gym.corpus._corpus import SAMPLE_CORPUS
from tests.conftest import require

EMBED = "-Xclang -fembed-bitcode=all"

Run = Callable[..., str]
Texts = dict[str, bytes]


@pytest.fixture(scope="session")
def clang() -> str:
    return require("clang-22", "clang-22")


def run(*command: str | Path, cwd: Path | None = None) -> str:
    process = subprocess.run(
        [str(part) for part in command], cwd=cwd, capture_output=True, text=True, check=False
    )
    assert process.returncode == 0, process.stdout + process.stderr
    return process.stdout


@pytest.fixture(scope="session")
def llvm_extract() -> Callable[..., Path]:
    """LLVM's extract_ir of mlgo-utils."""
    objcopy = require("llvm-objcopy-22", "llvm-22")

    def extract(output: Path, *arguments: str | Path, cwd: Path | None = None) -> Path:
        module = ("-m", "mlgo.corpus.extract_ir")
        options = ("--output_dir", output, "--llvm_objcopy_path", objcopy)
        output.mkdir(parents=True, exist_ok=True)
        run(sys.executable, *module, *options, *arguments, cwd=cwd)
        return output

    return extract


@pytest.fixture(scope="session")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The project beside this file, with the sources of the sample corpus."""
    root = tmp_path_factory.mktemp("project")
    shutil.copytree(Path(__file__).parent / "project", root, dirs_exist_ok=True)
    shutil.copytree(SAMPLE_CORPUS.parent / "src", root / "src")
    return root


@pytest.fixture(scope="session")
def cmake_build(sources: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    build = tmp_path_factory.mktemp("cmake")
    run(
        *(require("cmake", "cmake"), "-S", sources, "-B", build, "-G", "Ninja"),
        f"-DCMAKE_C_COMPILER={require('clang-22', 'clang-22')}",
        f"-DCMAKE_CXX_COMPILER={require('clang++-22', 'clang-22')}",
        *(f"-DCMAKE_{language}_FLAGS={EMBED}" for language in ("C", "CXX")),
        *("-DCMAKE_BUILD_TYPE=Release", "-DCMAKE_EXPORT_COMPILE_COMMANDS=ON"),
    )
    run(require("ninja", "ninja-build"), "-C", build)
    return build


@pytest.fixture(scope="session")
def make_build(sources: Path, tmp_path_factory: pytest.TempPathFactory, clang: str) -> Path:
    build = tmp_path_factory.mktemp("make")
    shutil.copytree(sources, build, dirs_exist_ok=True)
    run(require("make", "make"), "-j2", f"CC={clang}", cwd=build)
    return build


THIN_SOURCES = ("expr_compile", "expr_vm", "lisp_cells", "bignum", "text_layout")


@pytest.fixture(scope="session")
def thin_objects(sources: Path, tmp_path_factory: pytest.TempPathFactory, clang: str) -> Path:
    """Objects of a ThinLTO build, before any link."""
    build = tmp_path_factory.mktemp("thin")
    for name in THIN_SOURCES:
        source = sources / "src" / f"{name}.c"
        run(clang, "-O2", "-fPIC", "-flto=thin", "-c", source, "-o", build / f"{name}.o")
    return build


@pytest.fixture(scope="session")
def local_thinlto(thin_objects: Path, tmp_path_factory: pytest.TempPathFactory, clang: str) -> Path:
    """A local ThinLTO build: its link's command in ``link.txt``, native objects in ``native``."""
    build = tmp_path_factory.mktemp("local")
    shutil.copytree(thin_objects, build, dirs_exist_ok=True)
    (build / "native").mkdir()
    lld = require("ld.lld-22", "lld-22")
    link = [
        *(clang, f"-fuse-ld={lld}", "-flto=thin", "-O2", "-shared"),
        *(f"{name}.o" for name in THIN_SOURCES),
        *("-o", "out.so", "-Wl,--save-temps=import", "-Wl,--thinlto-emit-index-files"),
    ]
    run(*link, "-Wl,--lto-obj-path=native/module.o", cwd=build)
    (build / "link.txt").write_text(" ".join(link))
    return build


@pytest.fixture(scope="session")
def distributed_thinlto(
    thin_objects: Path, tmp_path_factory: pytest.TempPathFactory, clang: str
) -> Path:
    """A distributed ThinLTO build: native objects with the bitcode that they were made of."""
    build = tmp_path_factory.mktemp("distributed")
    shutil.copytree(thin_objects, build, dirs_exist_ok=True)
    objects = [f"{name}.o" for name in THIN_SOURCES]
    lld = require("ld.lld-22", "lld-22")
    run(lld, "--thinlto-index-only", "-shared", *objects, "-o", "out.so", cwd=build)
    for name in objects:
        run(
            *(clang, "-O2", "-fPIC", "-x", "ir", name, f"-fthinlto-index={name}.thinlto.bc"),
            *("-mllvm", "-lto-embed-bitcode=post-merge-pre-opt", "-c", "-o", f"native.{name}"),
            cwd=build,
        )
    return build


@pytest.fixture(scope="session")
def compile_back(clang: str) -> Callable[[Path, str, Path], Texts]:
    """Code sections of a corpus' module when ``clang -cc1`` runs its command."""

    def compile_module(corpus: Path, module: str, folder: Path) -> Texts:
        description = json.loads((corpus / "corpus_description.json").read_bytes())
        command: Sequence[str] = description.get("global_command_override", ())
        command = command or read_command(corpus / f"{module}.cmd")
        index = f"-fthinlto-index={corpus / module}.thinlto.bc"
        thinlto = [index, "-mllvm", "-thinlto-assume-merged"] if description["has_thinlto"] else []
        output = folder / "back.o"
        bitcode = corpus / f"{module}.bc"
        run(clang, *command, "-x", "ir", bitcode, "-o", output, *thinlto)
        return texts(output)

    return compile_module


def texts(path: Path) -> Texts:
    """The code sections of an object, by name."""
    file = ObjectFile.parse(path.read_bytes())
    names = [name for name, _, _ in file.sections if name.startswith(".text")]
    return {name: file.contents(name) or b"" for name in names}

"""Clang from PyPI, the extra ``toolchain``, does what the distribution's does."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from corpus_tools.build import build_from_sources
from corpus_tools.clang import find_clang
from corpus_tools.compilation import Compilation
from tests.cli.command import run

ROOT = Path(__file__).parent.parent
SAMPLE = ROOT / "mlgo_gym" / "corpus" / "sample" / "src"


@pytest.fixture(scope="module")
def clang(tmp_path_factory: pytest.TempPathFactory) -> Path:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = project["optional-dependencies"]["toolchain"]
    place = tmp_path_factory.mktemp("toolchain") / "environment"
    subprocess.run([sys.executable, "-m", "venv", place], check=True)
    subprocess.run([place / "bin" / "pip", "install", "--quiet", *wanted], check=True)
    subprocess.run([place / "bin" / "python", "-c", ""], check=True)  # makes the links
    return place / "bin" / "clang"


@pytest.mark.network
def test_a_corpus_has_clangs_code(clang: Path, tmp_path: Path) -> None:
    compilation = Compilation(clang=find_clang(str(clang)), root=SAMPLE, flags=("-std=c++17",))
    build_from_sources(compilation, ["scene.cpp", "digest.c"], tmp_path / "corpus")
    command = ("corpus", "verify", "--corpus", "corpus", "--clang", clang, "--json")
    done = run(*command, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    modules = json.loads(done.stdout)["modules"]
    assert len(modules) == 2
    assert "differs" not in done.stdout


@pytest.mark.network
def test_the_driver_answers_in_its_process(clang: Path, tmp_path: Path) -> None:
    """Derived features can be had there alone."""
    environment = os.environ | {
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
        "MLGO_CLANG": str(clang),
        "MLGO_CACHE": str(tmp_path / "cache"),
        "MLGO_INLINING_MODEL": "inlining-for-size-derived",
        "MLGO_STRICT": "1",
    }
    sizes = []
    for name in (clang.with_name("clang++"), ROOT / "scripts" / "mlgo-c++"):
        made = tmp_path / f"{name.name}.o"
        command: list[str | Path] = [name, SAMPLE / "scene.cpp", "-o", made]
        command += ["-c", "-Oz", "-std=c++17"]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        assert done.stderr == ""
        sizes.append(made.stat().st_size)
    assert sizes[0] != sizes[1]

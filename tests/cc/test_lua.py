"""Lua 5.4, unchanged, by its own makefile: the same objects, and its own tests pass."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from corpus_tools import load_recipe
from corpus_tools.sdist import fetch_sdist, unpack_sdist
from mlgo_gym.cli._main import main
from tests.cc.conftest import AS_DEFAULT, MODELS, Driver
from tests.conftest import require

MAKE = ("MYLIBS=-ldl", "MYCFLAGS=-std=c99 -DLUA_USE_LINUX", "CWARNGCC=", "CFLAGS=-O2 $(MYCFLAGS)")


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = os.environ.get("MLGO_GYM_SDISTS")
    return fetch_sdist(
        load_recipe("lupa"), Path(folder) if folder else tmp_path_factory.mktemp("sdists")
    )


def build(sdist: Path, folder: Path, compiler: str, environment: dict[str, str]) -> Path:
    folder.mkdir()
    root = unpack_sdist(sdist, folder) / "third-party" / "lua54"
    done = subprocess.run(
        [require("make", "make"), "-s", "-j2", f"CC={compiler}", *MAKE],
        cwd=root, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    return root


@pytest.mark.network
@pytest.mark.e2e
def test_lua(
    driver: Driver, sdist: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    environment = dict(driver.environment)
    compiler = str(driver.command()[0])
    plain = build(sdist, tmp_path / "plain", driver.clang, environment)
    same = build(sdist, tmp_path / "same", compiler, environment | AS_DEFAULT)
    objects = sorted(each.name for each in plain.glob("*.o"))
    assert len(objects) == 34
    for name in [*objects, "lua"]:
        assert (plain / name).read_bytes() == (same / name).read_bytes(), name
    settings = {
        "MLGO_INLINING_MODEL": str(MODELS / "inliner"),
        "MLGO_REGALLOC_MODEL": str(MODELS / "lowest_density"),
        "MLGO_STRICT": "1",
    }
    other = build(sdist, tmp_path / "other", compiler, environment | settings)
    assert all((plain / name).read_bytes() != (other / name).read_bytes() for name in ["lvm.o"])
    for folder in (same, other):
        done = subprocess.run(
            ["../lua", "-e_U=true", "all.lua"],
            cwd=folder / "testes", capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert "final OK !!!" in done.stdout
    assert main(["size-report", str(plain), str(other)]) == 0
    assert "lvm.o" in capsys.readouterr().out

"""Nodes whose code or data differ are told apart, whatever version they say that they have."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import ModuleType

import pytest

import corpus_tools
import mlgo_gym
from mlgo_gym.lab.cluster import _ray_worker

PACKAGES = (corpus_tools, mlgo_gym)
NO_BYTECODE = shutil.ignore_patterns("__pycache__")


@pytest.mark.parametrize(
    "name",
    [
        "mlgo_gym/base/_files.py",
        "mlgo_gym/lab/tiers/sample/json.npz",
        "corpus_tools/allowed/cc1_table.py",
        "corpus_tools/allowed/llvm_options.txt",
    ],
)
def test_all_that_a_node_runs_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    digest = _ray_worker._installed_digest.__wrapped__
    here = digest()
    for package in PACKAGES:
        move(package, tmp_path, monkeypatch)
    assert digest() == here
    with (tmp_path / name).open("ab") as file:
        file.write(b"\n")
    assert digest() != here


def move(package: ModuleType, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the package's files looked for in a copy of its folder."""
    there = Path(str(package.__file__))
    shutil.copytree(there.parent, folder / package.__name__, ignore=NO_BYTECODE)
    monkeypatch.setattr(package, "__file__", str(folder / package.__name__ / there.name))

"""What the package promises at the top: names, versions, files."""

from __future__ import annotations

import importlib
import pkgutil
import re
from pathlib import Path

import pytest

import corpus_tools
import mlgo_gym

ROOT = Path(__file__).parent.parent
MODULES = sorted(
    info.name
    for package in (mlgo_gym, corpus_tools)
    for info in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
)


def test_names_at_the_top() -> None:
    for name in mlgo_gym.__all__:
        assert getattr(mlgo_gym, name) is not None
    assert set(dir(mlgo_gym)) == set(mlgo_gym.__all__)
    with pytest.raises(AttributeError, match="^module 'mlgo_gym' has no attribute 'Compilerr'$"):
        _ = mlgo_gym.Compilerr


@pytest.mark.parametrize("name", MODULES)
def test_what_modules_export_exists(name: str) -> None:
    module = importlib.import_module(name)
    assert module.__doc__
    for exported in getattr(module, "__all__", ()):
        assert hasattr(module, exported), exported


def test_version_and_changelog_agree() -> None:
    changelog = (ROOT / "CHANGELOG.md").read_text()
    latest = re.search(r"^## (\S+)", changelog, re.MULTILINE)
    assert latest is not None
    assert latest.group(1) == mlgo_gym.__version__
    assert f'version = "{mlgo_gym.__version__}"' in (ROOT / "pyproject.toml").read_text()

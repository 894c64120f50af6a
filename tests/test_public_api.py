"""What the package promises: its doors, what they open to, versions, files."""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import re
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

import corpus_tools
import mlgo_gym
from scripts.docs_site import NAMES, name_tables, public_names

ROOT = Path(__file__).parent.parent
MODULES = sorted(
    info.name
    for package in (mlgo_gym, corpus_tools)
    for info in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
)
LOOSE = {"cli.options", "envs.sb3", "errors"}
DOORS = public_names()
"""The names that each package's stub opens to."""


def test_names_at_the_top() -> None:
    assert set(dir(mlgo_gym)) >= set(DOORS["mlgo_gym"])
    with pytest.raises(AttributeError, match="No mlgo_gym attribute Compilerr"):
        _ = mlgo_gym.Compilerr  # type: ignore[attr-defined]


@pytest.mark.parametrize("package", DOORS)
def test_a_door_opens_to_all_its_names(package: str) -> None:
    module = importlib.import_module(package)
    for name in DOORS[package]:
        assert getattr(module, name) is not None
    assert set(DOORS[package]) <= set(dir(module))


@pytest.mark.parametrize("package", DOORS)
def test_each_name_has_an_example(package: str) -> None:
    module = importlib.import_module(package)
    objects = {name: getattr(module, name) for name in DOORS[package]}
    documented = {
        name: each.__doc__ or ""
        for name, each in objects.items()
        if inspect.isclass(each) or inspect.isfunction(each)
    }
    lacking = [name for name, text in documented.items() if ">>>" not in text]
    assert lacking == []


def test_the_page_lists_the_doors() -> None:
    page = NAMES.read_text()
    hint = "run: python -m scripts.docs_site names"
    assert page[page.index("## `mlgo_gym`\n") :] == name_tables(), hint
    assert "|  |" not in page


def test_doors_are_few() -> None:
    assert sum(len(names) for names in DOORS.values()) <= 208


def test_what_is_no_door_is_private_by_name() -> None:
    packages = {name for name in MODULES if (ROOT / name.replace(".", "/")).is_dir()}
    public = [
        name
        for name in MODULES
        if name.startswith("mlgo_gym.") and name not in packages and "._" not in name
    ]
    assert set(public) == {f"mlgo_gym.{each}" for each in LOOSE}


@pytest.mark.parametrize("name", MODULES)
def test_what_modules_export_exists(name: str) -> None:
    module = importlib.import_module(name)
    assert module.__doc__
    for exported in getattr(module, "__all__", ()):
        assert hasattr(module, exported), exported


_BY_CASE = {
    *(
        "baseline",
        "deadline_s",
        "default",
        "hidden",
        "in_order",
        "mode",
        "name",
        "opt_level",
        "policy",
    ),
    *("objects", "problem", "progress", "seed", "source", "split", "start", "task"),
}
"""Parameters that are something else in another place."""


def _defaults(path: Path) -> Iterator[tuple[str, str]]:
    """The parameters of a file's functions that have a default, with it."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef):
            positional = node.args.posonlyargs + node.args.args
            pairs = [
                *zip(reversed(positional), reversed(node.args.defaults), strict=False),
                *zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True),
            ]
            yield from ((name.arg, ast.unparse(value)) for name, value in pairs if value)


def test_parameters_of_one_name_have_one_default() -> None:
    """Who knows one function knows the others."""
    found: dict[str, list[str]] = defaultdict(list)
    for path in (each for name in ("mlgo_gym", "corpus_tools") for each in _sources(ROOT / name)):
        for name, default in _defaults(path):
            found[name].append(default)
    several = {name: set(each) for name, each in found.items() if len(each) > 1}
    assert len(several) > 40
    assert {name for name, each in several.items() if len(each) > 1} == _BY_CASE


def _sources(folder: Path) -> list[Path]:
    return [each for each in folder.rglob("*.py") if "_proto" not in each.parts]


def test_version_and_changelog_agree() -> None:
    changelog = (ROOT / "CHANGELOG.md").read_text()
    latest = re.search(r"^## (\d\S+)", changelog, re.MULTILINE)
    assert latest is not None
    assert latest.group(1) == mlgo_gym.__version__
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert "version" not in project["project"]  # the build reads it from the package
    assert project["tool"]["hatch"]["version"]["path"] == "mlgo_gym/__init__.py"

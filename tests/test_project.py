"""What the project's own files say of each other: versions, licences, locks."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
SOURCES = [path for each in ("mlgo_gym", "corpus_tools") for path in (ROOT / each).rglob("*.py")]
WORKFLOW = (ROOT / ".github" / "workflows" / "ci.yml").read_text()


def _classified(prefix: str) -> set[str]:
    return {each.removeprefix(prefix) for each in PROJECT["classifiers"] if each.startswith(prefix)}


PYTHONS = {f"3.{each}" for each in _classified("Programming Language :: Python :: 3.")}


def test_the_pythons_that_are_named_are_those_that_are_tested() -> None:
    assert set(re.findall(r'"(3\.\d+)"', WORKFLOW)) == PYTHONS


def test_the_oldest_python_that_is_named_is_the_oldest_that_is_allowed() -> None:
    allowed = SpecifierSet(PROJECT["requires-python"])
    oldest = next(minor for minor in range(100) if allowed.contains(f"3.{minor}.99"))
    assert f"3.{oldest}" in PYTHONS
    assert f"3.{oldest - 1}" not in PYTHONS


def test_the_systems_that_are_named_are_those_that_are_tested() -> None:
    assert _classified("Operating System :: ") == {"POSIX :: Linux"}
    runners = set(re.findall(r"runs-on: (\w+)", WORKFLOW))
    assert runners == {"ubuntu"}


def test_the_lock_has_all_that_development_takes() -> None:
    locked: dict[str, set[str]] = {}
    for line in (ROOT / "requirements-dev.lock").read_text().splitlines():
        if line and not line.startswith((" ", "#")):
            pinned = Requirement(line)
            (version,) = pinned.specifier
            assert version.operator == "==", line
            locked.setdefault(canonicalize_name(pinned.name), set()).add(version.version)
    wanted = [*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["dev"]]
    for each in map(Requirement, wanted):
        versions = locked[canonicalize_name(each.name)]
        assert all(each.specifier.contains(version) for version in versions), each


def _records(path: Path) -> Iterator[tuple[str, dict[str, str]]]:
    """The dataclasses of a file, with what their decorators say."""
    for node in ast.walk(ast.parse(path.read_text())):
        for each in getattr(node, "decorator_list", ()):
            name, keywords = (
                (each.func, each.keywords) if isinstance(each, ast.Call) else (each, [])
            )
            if isinstance(node, ast.ClassDef) and ast.unparse(name) == "dataclass":
                yield node.name, {str(word.arg): ast.unparse(word.value) for word in keywords}


def test_records_are_values() -> None:
    """But for those that are filled in bit by bit."""
    found = dict(each for path in SOURCES for each in _records(path))
    assert len(found) > 150
    changing = {name for name, words in found.items() if words.get("frozen") != "True"}
    assert changing == {
        *(
            "Native",
            "TrainingRun",
            "_AllocationUnit",
            "_Answers",
            "_Link",
            "_Parts",
            "_Pending",
            "_Progress",
            "_Session",
        )
    }


def test_private_names_are_used() -> None:
    """Ruff does not report constants, functions and classes of a module that nothing reads."""
    unused = []
    for path in SOURCES:
        text = path.read_text()
        made = re.findall(r"^(?:def |class )?(_[A-Za-z]\w*)", text, re.MULTILINE)
        unused += [(path.name, each) for each in made if len(re.findall(rf"\b{each}\b", text)) == 1]
    assert unused == [("model_runner_pb2.py", "_sym_db")]  # protoc's


def test_the_tables_of_packages_list_all() -> None:
    _, section = (ROOT / "CONTRIBUTING.md").read_text().split("## The packages")
    listed = [
        name
        for cell in re.findall(r"^\| (`.*?) \|", section, re.MULTILINE)
        for name in re.findall(r"`([\w.]+)`", cell)
    ]
    package = ROOT / "mlgo_gym"
    doors = [*package.glob("*/__init__.pyi"), *package.glob("lab/*/__init__.pyi")]
    folders = [".".join(each.parent.relative_to(package).parts) for each in doors]
    assert sorted(listed) == sorted([*folders, "errors"])


def test_one_licence_everywhere() -> None:
    (annotation,) = tomllib.loads((ROOT / "REUSE.toml").read_text())["annotations"]
    assert annotation["path"] == "**"
    assert annotation["SPDX-License-Identifier"] == PROJECT["license"]
    assert [annotation["SPDX-FileCopyrightText"]] == [each["name"] for each in PROJECT["authors"]]
    parts = [ROOT / "LICENSES" / f"{each}.txt" for each in PROJECT["license"].split(" WITH ")]
    texts = [each.read_text().strip() for each in parts]
    assert "\n\n".join(texts) == (ROOT / "LICENSE").read_text().strip()

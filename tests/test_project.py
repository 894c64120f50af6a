"""What the project's own files say of each other: versions, licences, locks."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
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


def test_one_licence_everywhere() -> None:
    (annotation,) = tomllib.loads((ROOT / "REUSE.toml").read_text())["annotations"]
    assert annotation["path"] == "**"
    assert annotation["SPDX-License-Identifier"] == PROJECT["license"]
    assert [annotation["SPDX-FileCopyrightText"]] == [each["name"] for each in PROJECT["authors"]]
    parts = [ROOT / "LICENSES" / f"{each}.txt" for each in PROJECT["license"].split(" WITH ")]
    texts = [each.read_text().strip() for each in parts]
    assert "\n\n".join(texts) == (ROOT / "LICENSE").read_text().strip()

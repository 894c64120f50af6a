"""A build's modules are compiled again where a command, a source or a header has changed."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from corpus_tools.extraction.recompile import BuildCommand
from mlgo_gym.cc import _module_sources
from mlgo_gym.cc._project import Project, open_project
from mlgo_gym.errors import EnvironmentSetupError

HEADER = "static inline int twice(int x) { return 2 * x; }\n"
SOURCES = {
    "a.c": '#include "it\'s $1 #2 a.h"\nint a(int x) { return twice(x); }\n',
    "b.c": "int b(int x) { return x; }\n",
}
INCLUDED = "it's $1 #2 a.h"


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of modules that are compiled."""
    names: list[str] = []
    compile_ = BuildCommand.compile

    def noted(self: BuildCommand, *arguments: Any) -> Any:
        names.append(self.name)
        return compile_(self, *arguments)

    monkeypatch.setattr(BuildCommand, "compile", noted)
    return names


@pytest.fixture
def build(clang22: str, tmp_path: Path) -> Path:
    del clang22
    folder = tmp_path / "build"
    folder.mkdir()
    for name, text in (SOURCES | {INCLUDED: HEADER}).items():
        write(folder / name, text)
    list_commands(folder)
    return folder


def write(path: Path, text: str) -> None:
    """As if it was written a while ago: what is written while clang runs is not relied on."""
    path.write_text(text)
    past = time.time_ns() - 10**9
    os.utime(path, ns=(past, past))


def list_commands(build: Path, *options: str) -> None:
    entries = [
        {
            "directory": str(build),
            "file": name,
            "arguments": [
                "clang",
                *(options if name == "b.c" else ()),
                "-c",
                name,
                "-o",
                f"{name}.o",
            ],
        }
        for name in SOURCES
    ]
    (build / "compile_commands.json").write_text(json.dumps(entries))


def opened(build: Path) -> Project:
    return open_project(build, build.parent / "out", 1, 60.0, renews=True)


def data_of(project: Project) -> dict[str, bytes]:
    return {name: project.corpus[name].data for name in project.corpus}


def test_only_what_has_changed_is_compiled(build: Path, compiled: list[str]) -> None:
    first = data_of(opened(build))
    assert sorted(compiled) == ["a.c.o", "b.c.o"]
    compiled.clear()
    assert data_of(opened(build)) == first
    assert compiled == []
    write(build / INCLUDED, HEADER.replace("2 * x", "3 * x + 1"))
    second = data_of(opened(build))
    assert compiled == ["a.c.o"]
    assert second["a.c.o"] != first["a.c.o"]
    assert second["b.c.o"] == first["b.c.o"]
    compiled.clear()
    list_commands(build, "-DNDEBUG")
    opened(build)
    assert compiled == ["b.c.o"]


@pytest.mark.parametrize(
    ("variable", "value"), [("CPATH", "."), ("CCC_OVERRIDE_OPTIONS", "# s/-O1/-O2/")]
)
def test_another_clang_compiles_all(
    build: Path,
    compiled: list[str],
    monkeypatch: pytest.MonkeyPatch,
    variable: str,
    value: str,
) -> None:
    opened(build)
    compiled.clear()
    monkeypatch.setenv(variable, value)
    opened(build)
    assert sorted(compiled) == ["a.c.o", "b.c.o"]


def test_a_clang_that_does_not_answer(build: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_module_sources, "_VERSION_DEADLINE_S", 1e-6)
    message = "^clang: cannot be asked for its version: .* timed out"
    with pytest.raises(EnvironmentSetupError, match=message):
        opened(build)


def test_a_header_that_is_written_meanwhile(build: Path, compiled: list[str]) -> None:
    """Whether clang has read it before or after is not known."""
    (build / INCLUDED).write_text(HEADER)
    ahead = time.time_ns() + 10**11
    os.utime(build / INCLUDED, ns=(ahead, ahead))
    opened(build)
    compiled.clear()
    opened(build)
    assert compiled == ["a.c.o"]


def test_modules_that_are_gone(build: Path, compiled: list[str]) -> None:
    project = opened(build)
    compiled.clear()
    (project.corpus.folder / "b.c.o.bc").unlink()
    assert data_of(opened(build)).keys() == {"a.c.o", "b.c.o"}
    assert compiled == ["b.c.o"]
    (build / "b.c").unlink()
    assert list(opened(build).corpus) == ["a.c.o"]


@pytest.mark.parametrize(
    "text",
    ["", "[]", '{"files": [], "modules": {"a.c.o": {"command": "", "reads": [0], "stamp": ""}}}'],
)
def test_a_record_that_is_none(text: str, build: Path, compiled: list[str]) -> None:
    project = opened(build)
    compiled.clear()
    (build.parent / "out" / "sources.json").write_text(text)
    assert opened(build) == project
    assert sorted(compiled) == ["a.c.o", "b.c.o"]

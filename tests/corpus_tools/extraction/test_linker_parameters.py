"""Objects out of parameter files and out of Bazel's actions."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from corpus_tools.errors import BuildListError
from corpus_tools.extraction import (
    ObjectInput,
    Outcome,
    list_aquery,
    list_folder,
    list_parameters,
)
from tests.conftest import require


def names(listed: list[Any]) -> list[str]:
    assert all(isinstance(each, ObjectInput) for each in listed)
    return [each.name for each in listed]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a.o\nsub/b.o\n", ["a.o", "sub/b.o"]),
        ("-o\nprog.o\n-lm\na.o\n-Wl,b.o\n", ["a.o"]),
        ("-o prog a.o 'b c.o'\n", ["a.o", "b c.o"]),
        ("a.o\n@more\n", ["a.o", "c.o", "d.o"]),
        ("with space.o\n", ["with space.o"]),
        ("a.o\na.o\n", ["a.o"]),
        ("libx.so\nmain.c\n", []),
        ("-o prog " + "-lm " * 2000 + "a.o\n", ["a.o"]),
    ],
)
def test_parameter_files(text: str, expected: list[str], tmp_path: Path) -> None:
    (tmp_path / "more").write_text("c.o @deeper")
    (tmp_path / "deeper").write_text("d.o")
    (tmp_path / "with space.o").touch()
    (tmp_path / "params").write_text(text)
    assert names(list_parameters(tmp_path / "params", tmp_path)) == expected


@pytest.mark.parametrize("is_aquery", [False, True])
def test_a_response_file_that_is_none(is_aquery: bool, tmp_path: Path) -> None:
    """The error says which file named it."""
    path = tmp_path / "params"
    link = {"mnemonic": "CppLink", "arguments": ["ld", "@more"]}
    path.write_text(json.dumps({"actions": [link]}) if is_aquery else "a.o\n@more\n")
    (tmp_path / "more").write_text("@/")
    expected = "response file /: cannot be read: Is a directory"
    with pytest.raises(BuildListError) as caught:
        (list_aquery if is_aquery else list_parameters)(path, tmp_path)
    assert str(caught.value) == f"{path}: {expected}"


def test_names_that_no_file_has(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "params").write_text("../a\0.o\n../loop/b.o\nc.o\n")
    nul, loop, sound = list_parameters(tmp_path / "params", tmp_path)
    assert isinstance(nul, Outcome)
    assert nul.reason == "expected a name or a word of a command, found a NUL in '../a\\x00.o'"
    assert isinstance(loop, Outcome)
    assert loop.reason == f"lies outside {tmp_path}; name a folder above it with --obj_base_dir"
    assert isinstance(sound, ObjectInput)


def test_objects_stand_beside_archives(tmp_path: Path) -> None:
    """Wherever a link names them, with the archives' members in between."""
    for name in ("a.o", "b.o", "m.o", "n.o"):
        (tmp_path / name).write_bytes(b"object")
    for archive, member in (("x.a", "m.o"), ("y.lo", "n.o")):
        llvm_ar = require("llvm-ar-22", "llvm-22")
        subprocess.run([llvm_ar, "rcS", archive, member], cwd=tmp_path, check=True)
    (tmp_path / "params").write_text("-o\nprog\na.o\nx.a\nb.o\ny.lo\nx.a\n")
    expected = ["a.o", "x.a/m.o", "b.o", "y.lo/n.o"]
    assert names(list_parameters(tmp_path / "params", tmp_path)) == expected
    assert names(list_folder(tmp_path)) == [
        *sorted(["a.o", "b.o", "m.o", "n.o"]),
        expected[1],
        expected[3],
    ]


def test_bazel_aquery(tmp_path: Path) -> None:
    link = {
        "mnemonic": "CppLink",
        "arguments": ["clang", "-o", "bin/prog", "@bin/prog.params", "x.o"],
        "paramFiles": [{"execPath": "bin/prog.params", "arguments": ["-pie", "a.pic.o", "b.o"]}],
    }
    on_disk = {"mnemonic": "CppLink", "arguments": ["clang", "@list"]}
    (tmp_path / "list").write_text("c.o\n")
    actions = [{"mnemonic": "CppCompile", "arguments": ["clang", "no.o"]}, link, on_disk]
    (tmp_path / "aquery.json").write_text(json.dumps({"actions": actions}))
    listed = list_aquery(tmp_path / "aquery.json", tmp_path)
    assert names(listed) == ["a.pic.o", "b.o", "x.o", "c.o"]

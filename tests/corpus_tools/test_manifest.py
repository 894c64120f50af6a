"""The layout of mlgo-utils: manifests and commands, read, written and refused."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpus_tools import Manifest, encode_command, read_command
from corpus_tools.errors import LayoutError
from corpus_tools.manifest import MANIFEST_NAME


def _corpus(folder: Path, description: object, bitcode: Sequence[str] = ()) -> Path:
    (folder / MANIFEST_NAME).write_text(json.dumps(description))
    for name in bitcode:
        path = folder / f"{name}.bc"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"BC\xc0\xde")
    return folder


def test_write_gives_the_bytes_that_mlgo_utils_writes(tmp_path: Path) -> None:
    Manifest(("a", "b/c"), True, ("-O2",)).write(tmp_path)
    assert (tmp_path / MANIFEST_NAME).read_text() == (
        '{\n  "global_command_override": [\n    "-O2"\n  ],\n'
        '  "has_thinlto": true,\n  "modules": [\n    "a",\n    "b/c"\n  ]\n}'
    )


def test_write_leaves_nothing_beside_the_manifest_and_everybody_may_read_it(tmp_path: Path) -> None:
    Manifest(("a",)).write(tmp_path)
    Manifest(("b",)).write(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [MANIFEST_NAME]
    assert (tmp_path / MANIFEST_NAME).stat().st_mode & 0o777 == 0o644


@pytest.mark.parametrize("override", [None, (), ("-cc1", "-O2")])
def test_read_gives_back_what_was_written(tmp_path: Path, override: tuple[str, ...] | None) -> None:
    written = Manifest(("src/a.c", "b"), True, override)
    _corpus(tmp_path, {}, written.modules)
    written.write(tmp_path)
    assert Manifest.read(tmp_path) == written


def test_keys_that_later_tools_may_add_are_no_error(tmp_path: Path) -> None:
    _corpus(tmp_path, {"modules": ["a"], "has_thinlto": False, "comment": "new"}, ["a"])
    assert Manifest.read(tmp_path).modules == ("a",)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("[1]", "JSON: expected a JSON object, found [1]"),
        ("{", "JSON: "),
        ("[" * 100_000, "JSON: "),
        ('{"has_thinlto": false}', "JSON: expected 'modules', found none"),
        ('{"modules": "a", "has_thinlto": false}', "JSON: modules: expected a list, found 'a'"),
        ('{"modules": [1], "has_thinlto": false}', "JSON: modules[0]: expected a text, found 1"),
        ('{"modules": []}', "JSON: expected 'has_thinlto', found none"),
        ('{"modules": [], "has_thinlto": 0}', "JSON: has_thinlto: expected a truth value, found 0"),
        (
            '{"modules": [], "has_thinlto": false, "global_command_override": "-O2"}',
            "JSON: global_command_override: expected a list, found '-O2'",
        ),
        (
            '{"modules": ["a", "a"], "has_thinlto": false}',
            "module 'a': expected once, found twice",
        ),
        (
            '{"modules": [""], "has_thinlto": false}',
            "module '': expected a name, found an empty string",
        ),
        (
            '{"modules": ["/etc/a"], "has_thinlto": false}',
            "module '/etc/a': expected a relative name, found an absolute one",
        ),
        (
            '{"modules": ["C:a"], "has_thinlto": false}',
            "module 'C:a': expected a name without a drive of Windows, found 'C:'",
        ),
        (
            '{"modules": ["a/../../b"], "has_thinlto": false}',
            "module 'a/../../b': expected a name inside the corpus, found a '..' part",
        ),
        (
            '{"modules": ["a\\\\..\\\\b"], "has_thinlto": false}',
            "module 'a\\\\..\\\\b': expected a name without NUL and backslash, found one",
        ),
        (
            '{"modules": ["a\\u0000b"], "has_thinlto": false}',
            "module 'a\\x00b': expected a name without NUL and backslash, found one",
        ),
    ],
)
def test_a_bad_manifest_is_refused(tmp_path: Path, content: str, problem: str) -> None:
    path = tmp_path / MANIFEST_NAME
    path.write_text(content)
    with pytest.raises(LayoutError, match=re.escape(f"{path}: {problem}")) as caught:
        Manifest.read(tmp_path)
    assert caught.value.subject == path
    if not problem.endswith(": "):
        assert str(caught.value) == f"{path}: {problem}"


def test_a_manifest_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(LayoutError) as caught:
        Manifest.read(tmp_path)
    path = tmp_path / MANIFEST_NAME
    assert str(caught.value) == f"{path}: cannot be read: No such file or directory"


def test_a_name_that_is_too_long_for_a_file_is_missing(tmp_path: Path) -> None:
    name = "m" * 300
    _corpus(tmp_path, {"modules": [name], "has_thinlto": False}, [])
    with pytest.raises(LayoutError) as caught:
        Manifest.read(tmp_path)
    path = tmp_path / f"{name}.bc"
    assert str(caught.value) == f"module {name!r}: expected bitcode at {path}, found none"


@pytest.mark.parametrize(("present", "more"), [(["a"], " (and 1 more modules)"), (["a", "c"], "")])
def test_missing_bitcode_is_named(tmp_path: Path, present: list[str], more: str) -> None:
    _corpus(tmp_path, {"modules": ["a", "b", "c"], "has_thinlto": False}, present)
    with pytest.raises(LayoutError) as caught:
        Manifest.read(tmp_path)
    path = tmp_path / "b.bc"
    assert str(caught.value) == f"module 'b': expected bitcode at {path}, found none{more}"


@pytest.mark.parametrize("end", [b"", b"\0"])
def test_a_command_may_end_in_a_nul(tmp_path: Path, end: bytes) -> None:
    path = tmp_path / "a.cmd"
    path.write_bytes(b"-cc1\0-Oz\0-main-file-name\0caf\xe9.c" + end)
    command = read_command(path)
    assert command == ("-cc1", "-Oz", "-main-file-name", "caf\udce9.c")
    assert encode_command(command) == b"-cc1\0-Oz\0-main-file-name\0caf\xe9.c"


@given(st.lists(st.binary().filter(lambda argument: b"\0" not in argument)))
def test_any_command_survives_the_round_trip(
    tmp_path_factory: pytest.TempPathFactory, arguments: list[bytes]
) -> None:
    decoded = [argument.decode("utf-8", "surrogateescape") for argument in arguments]
    path = tmp_path_factory.getbasetemp() / "round-trip.cmd"
    path.write_bytes(encode_command(["-cc1", *decoded]))
    assert read_command(path) == ("-cc1", *decoded)


@pytest.mark.parametrize(
    ("content", "found"), [(b"", "''"), (b"-Oz\0-cc1", "'-Oz'"), (b"-cc1 -Oz", "'-cc1 -Oz'")]
)
def test_a_command_file_without_cc1_is_refused(tmp_path: Path, content: bytes, found: str) -> None:
    path = tmp_path / "a.cmd"
    path.write_bytes(content)
    with pytest.raises(LayoutError) as caught:
        read_command(path)
    assert str(caught.value) == f"{path}: expected '-cc1' as the first argument, found {found}"


def test_a_command_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(LayoutError, match=r"a\.cmd: cannot be read: No such file or directory"):
        read_command(tmp_path / "a.cmd")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "command: expected '-cc1' as the first argument, found ''"),
        (["-Oz"], "command: expected '-cc1' as the first argument, found '-Oz'"),
        (["-cc1", "a\0b"], "command: expected arguments without NUL, found 'a\\x00b'"),
    ],
)
def test_a_bad_command_is_not_encoded(arguments: list[str], message: str) -> None:
    with pytest.raises(LayoutError) as caught:
        encode_command(arguments)
    assert str(caught.value) == message

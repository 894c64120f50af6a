"""Output folders that appear whole or not at all."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from corpus_tools import Manifest
from corpus_tools.errors import OutputError
from corpus_tools.manifest import MANIFEST_NAME
from corpus_tools.staging import (
    INFO_NAME,
    WORKLOAD_FILES,
    WORKLOADS,
    check_output,
    digests_of,
    staged_corpus,
)


def _corpus(folder: Path, *modules: str) -> Path:
    folder.mkdir(parents=True)
    for module in modules:
        (folder / f"{module}.bc").write_bytes(b"BC")
    Manifest(modules).write(folder)
    return folder


def _names(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*"))


def test_a_new_folder_appears_with_its_parents_at_the_end(tmp_path: Path) -> None:
    output = tmp_path / "new" / "corpus"
    with staged_corpus(output) as staged:
        (staged / "a.bc").write_bytes(b"BC")
        assert not output.exists()
    assert _names(tmp_path) == ["new", "new/corpus", "new/corpus/a.bc"]
    assert output.stat().st_mode == (tmp_path / "new").stat().st_mode


def test_an_empty_folder_is_filled(tmp_path: Path) -> None:
    (tmp_path / "corpus").mkdir()
    with staged_corpus(tmp_path / "corpus") as staged:
        (staged / "a.bc").write_bytes(b"BC")
    assert _names(tmp_path) == ["corpus", "corpus/a.bc"]


def test_a_corpus_is_replaced_not_merged(tmp_path: Path) -> None:
    output = _corpus(tmp_path / "corpus", "old")
    with staged_corpus(output) as staged:
        Manifest(()).write(staged)
    assert _names(tmp_path) == ["corpus", f"corpus/{MANIFEST_NAME}"]


def test_a_corpus_behind_a_link_is_replaced_and_the_link_kept(tmp_path: Path) -> None:
    _corpus(tmp_path / "corpus", "old")
    (tmp_path / "link").symlink_to("corpus")
    with staged_corpus(tmp_path / "link") as staged:
        (staged / "a.bc").write_bytes(b"BC")
    assert (tmp_path / "link").is_symlink()
    assert _names(tmp_path / "corpus") == ["a.bc"]


def _interrupted(output: Path) -> None:
    with staged_corpus(output) as staged:
        (staged / "half.bc").write_bytes(b"BC")
        raise KeyboardInterrupt


@pytest.mark.parametrize("exists", [True, False])
def test_an_interrupted_block_leaves_what_was_there(tmp_path: Path, exists: bool) -> None:
    output = tmp_path / "corpus"
    if exists:
        _corpus(output, "old")
    before = _names(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        _interrupted(output)
    assert _names(tmp_path) == before


def _make_file(output: Path) -> None:
    output.write_text("")


def _make_folder(output: Path) -> None:
    output.mkdir()
    (output / "thesis.tex").write_text("")


def _make_mixed(output: Path) -> None:
    _corpus(output, "a")
    (output / "src").mkdir()
    (output / "src" / "a.c").write_text("")


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (_make_file, "expected a folder or nothing, found a file"),
        (_make_folder, "expected a corpus, found a folder without corpus_description.json"),
        (_make_mixed, "expected only a corpus, found src/a.c in it"),
    ],
)
def test_what_is_no_corpus_is_refused_and_kept(
    tmp_path: Path, make: Callable[[Path], None], problem: str
) -> None:
    output = tmp_path / "corpus"
    make(output)
    before = _names(tmp_path)
    message = f"^{re.escape(f'output {output}: {problem}')}$"
    with pytest.raises(OutputError, match=message):
        check_output(output)
    with pytest.raises(OutputError, match=message), staged_corpus(output):
        pytest.fail("the block ran")
    assert _names(tmp_path) == before


def test_what_appears_while_the_corpus_is_built_is_not_overwritten(tmp_path: Path) -> None:
    output = tmp_path / "corpus"
    with pytest.raises(OutputError, match="found a folder without"), staged_corpus(output):
        _make_folder(output)
    assert _names(tmp_path) == ["corpus", "corpus/thesis.tex"]


@pytest.mark.parametrize(
    ("parent", "reason"),
    [("file", "File exists"), ("file/deeper", "Not a directory"), ("locked", "Permission denied")],
)
def test_a_place_that_cannot_be_written_is_named(tmp_path: Path, parent: str, reason: str) -> None:
    if parent == "locked" and os.geteuid() == 0:
        parent, reason = "/proc", "No such file or directory"
    (tmp_path / "file").write_text("")
    (tmp_path / "locked").mkdir(mode=0o500)
    output = tmp_path / parent / "corpus"
    with pytest.raises(OutputError) as caught, staged_corpus(output):
        pass
    assert str(caught.value) == f"output {output}: cannot be written: {reason}"


def test_what_cannot_take_its_place_leaves_what_was_there(tmp_path: Path) -> None:
    output = _corpus(tmp_path / "corpus", "old")
    before = _names(tmp_path)
    with pytest.raises(FileNotFoundError), staged_corpus(output) as staged:
        staged.rmdir()
    assert _names(tmp_path) == before
    with pytest.raises(FileNotFoundError), staged_corpus(tmp_path / "new") as staged:
        staged.rmdir()
    assert _names(tmp_path) == before


def _with_workloads(output: Path, **files: str) -> Path:
    """A corpus with files of workloads, which it says are its own."""
    _corpus(output)
    (output / WORKLOADS).mkdir()
    for name, text in files.items():
        (output / WORKLOADS / name).write_text(text)
    info = {WORKLOAD_FILES: digests_of(output / WORKLOADS)}
    (output / INFO_NAME).write_text(json.dumps(info))
    return output


def test_workloads_that_came_with_a_corpus_go_with_it(tmp_path: Path) -> None:
    check_output(_with_workloads(tmp_path / "corpus", run="a"))


@pytest.mark.parametrize("name", ["mine", "run"])
def test_workloads_of_the_user_s_are_not_replaced(name: str, tmp_path: Path) -> None:
    """A file of their own, and one that they have changed."""
    output = _with_workloads(tmp_path / "corpus", run="a")
    (output / WORKLOADS / name).write_text("b")
    with pytest.raises(OutputError) as caught:
        check_output(output)
    problem = f"expected only a corpus, found workloads/{name} in it"
    assert str(caught.value) == f"output {output}: {problem}"


@pytest.mark.parametrize("info", ["", "[]", '{"workload_files": []}'])
def test_workloads_of_a_corpus_that_does_not_know_them(info: str, tmp_path: Path) -> None:
    output = _with_workloads(tmp_path / "corpus", run="a")
    (output / INFO_NAME).write_text(info)
    with pytest.raises(OutputError, match="found workloads/run in it"):
        check_output(output)

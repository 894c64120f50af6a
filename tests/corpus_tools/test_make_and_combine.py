"""Corpora of loose bitcode and of other corpora, beside LLVM's own tools."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest

from corpus_tools import Manifest, combine, make
from corpus_tools.errors import LayoutError
from mlgo_gym.corpus._corpus import SAMPLE_CORPUS
from tests.corpus_tools.extraction.conftest import run
from tests.folders import tree


def description(corpus: Path) -> dict[str, object]:
    loaded: dict[str, object] = json.loads((corpus / "corpus_description.json").read_bytes())
    loaded["modules"] = sorted(loaded["modules"])  # type: ignore[call-overload]
    return loaded


@pytest.fixture
def loose(tmp_path: Path) -> Path:
    folder = tmp_path / "loose"
    (folder / "sub").mkdir(parents=True)
    shutil.copy(SAMPLE_CORPUS / "frame_stream.c.bc", folder / "one.bc")
    shutil.copy(SAMPLE_CORPUS / "graph.cpp.bc", folder / "sub" / "two.bc")
    (folder / "sub" / "notes.txt").write_text("no bitcode")
    return folder


@pytest.mark.parametrize("default_args", [[], ["--default_args", "-cc1 -Oz  -triple x"]])
def test_make(default_args: list[str], loose: Path, tmp_path: Path) -> None:
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    arguments = ["--input_dir", str(loose), *default_args]
    assert make.main([*arguments, "--output_dir", str(ours)]) == 0
    theirs.mkdir()
    run(sys.executable, "-m", "mlgo.corpus.make_corpus", *arguments, "--output_dir", theirs)
    assert description(ours) == description(theirs)
    assert tree(ours).keys() == tree(theirs).keys()
    for name in ("one.bc", "sub/two.bc"):
        assert tree(ours)[name] == tree(theirs)[name]


def test_make_leaves_out_what_is_no_bitcode(
    loose: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (loose / "bad.bc").write_text("text")
    assert make.main(["--input-dir", str(loose), "--output-dir", str(tmp_path / "corpus")]) == 1
    message = "mlgo-make-corpus: bad.bc: expected bitcode at byte 0, found 74 65 78 74\n"
    assert capsys.readouterr().err == message
    assert description(tmp_path / "corpus")["modules"] == ["one", "sub/two"]


def test_make_into_the_same_folder(loose: Path) -> None:
    arguments = ["--input_dir", str(loose), "--output_dir", str(loose / "corpus")]
    for _ in range(2):
        assert make.main(arguments) == 0
        assert description(loose / "corpus")["modules"] == ["one", "sub/two"]


def test_make_without_a_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--input_dir", str(tmp_path / "none"), "--output_dir", str(tmp_path / "corpus")]
    assert make.main(arguments) == 1
    message = f"mlgo-make-corpus: error: {tmp_path / 'none'}: expected a folder, found none\n"
    assert capsys.readouterr().err == message


def corpora(root: Path, **override: object) -> None:
    for name in ("one", "two"):
        shutil.copytree(SAMPLE_CORPUS, root / name)
    path = root / "two" / "corpus_description.json"
    path.write_text(json.dumps(json.loads(path.read_bytes()) | override))


def test_combine(tmp_path: Path) -> None:
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    for root in (ours, theirs):
        corpora(root)
    assert combine.main(["--root-dir", str(ours)]) == 0
    run(sys.executable, "-m", "mlgo.corpus.combine_training_corpus", "--root_dir", theirs)
    assert description(ours) == description(theirs)
    assert tree(ours).keys() == tree(theirs).keys()


@pytest.mark.parametrize(
    "override", [{"has_thinlto": True}, {"global_command_override": ["-cc1", "-Oz"]}]
)
def test_corpora_that_differ(override: dict[str, object], tmp_path: Path) -> None:
    corpora(tmp_path, **override)
    with pytest.raises(LayoutError) as caught:
        combine.combine_corpus(tmp_path)
    key = next(iter(override))
    message = f"{tmp_path / 'two'}: expected the same {key!r} as in {tmp_path / 'one'}"
    assert str(caught.value) == f"{message}, found another"
    assert not (tmp_path / "corpus_description.json").exists()


def test_corpora_that_are_broken(tmp_path: Path) -> None:
    corpora(tmp_path)
    (tmp_path / "two" / "corpus_description.json").write_text("{")
    with pytest.raises(LayoutError):
        combine.combine_corpus(tmp_path)


def test_no_corpora(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert combine.main(["--root_dir", str(tmp_path)]) == 1
    message = f"{tmp_path}: expected corpora in its folders, found none"
    assert capsys.readouterr().err == f"mlgo-combine-corpus: error: {message}\n"


def test_names_are_only_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Not obeyed: neither what a terminal does with them nor rich's markup."""
    name = "[red]x\x1b[31m\u202e"
    (tmp_path / "a").mkdir()
    manifest = {"modules": [name], "has_thinlto": False}
    (tmp_path / "a" / "corpus_description.json").write_text(json.dumps(manifest))
    assert combine.main(["--root_dir", str(tmp_path)]) == 1
    shown = capsys.readouterr().err
    assert "/a/[red]x\\x1b[31m\\u202e.bc, found none" in shown
    assert all(each.isprintable() or each == "\n" for each in shown)


def test_nothing_to_make_a_corpus_of(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "bad.bc").write_bytes(b"text")
    arguments = ["--input_dir", str(tmp_path / "in"), "--output_dir", str(tmp_path / "out")]
    assert make.main(arguments) == 1
    assert capsys.readouterr() == (
        "",
        "mlgo-make-corpus: bad.bc: expected bitcode at byte 0, found 74 65 78 74\n"
        f"mlgo-make-corpus: error: no bitcode below {tmp_path / 'in'}\n",
    )
    assert not (tmp_path / "out").exists()


def test_a_folder_where_the_manifest_should_go(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What was written beside it until it was whole is removed."""
    one = tmp_path / "one"
    one.mkdir()
    Manifest(()).write(one)
    (tmp_path / "corpus_description.json" / "in the way").mkdir(parents=True)
    before = tree(tmp_path)
    assert combine.main(["--root_dir", str(tmp_path)]) == 1
    message = f"output {tmp_path}: cannot be written: Is a directory"
    assert capsys.readouterr().err == f"mlgo-combine-corpus: error: {message}\n"
    assert tree(tmp_path) == before
    assert sorted(tmp_path.iterdir()) == [tmp_path / "corpus_description.json", one]

"""Corpora and modules: loading, and what cannot be loaded."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from mlgo_gym.corpus._corpus import Corpus, Module
from mlgo_gym.errors import CorpusError, ModuleError


def make(folder: Path, manifest: object, *names: str) -> Path:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(b"BC")
    text = manifest if isinstance(manifest, str) else json.dumps(manifest)
    (folder / "corpus_description.json").write_text(text)
    return folder


def test_modules_are_read_when_asked_for(tmp_path: Path) -> None:
    folder = make(tmp_path, {"modules": ["a/x.c", "b"], "has_thinlto": False}, "a/x.c.bc", "b.bc")
    (folder / "a/x.c.cmd").write_bytes(b"-cc1\0-Oz\0-w\0")
    corpus = Corpus.load(folder)
    assert (len(corpus), list(corpus), "b" in corpus) == (2, ["a/x.c", "b"], True)
    assert corpus["a/x.c"].command == ("-cc1", "-Oz", "-w")
    assert corpus["b"].command is None
    assert corpus["b"].data == b"BC"


def test_one_command_for_all(tmp_path: Path) -> None:
    manifest = {"modules": ["m"], "has_thinlto": False, "global_command_override": ["-cc1", "-O3"]}
    corpus = Corpus.load(make(tmp_path, manifest, "m.bc"))
    assert corpus["m"].command == ("-cc1", "-O3")


BASE: dict[str, Any] = {"modules": ["m"], "has_thinlto": False}


@pytest.mark.parametrize(
    ("manifest", "message"),
    [
        (
            "{",
            "{folder}/corpus_description.json: JSON: "
            "Expecting property name enclosed in double quotes: line 1 column 2 (char 1)",
        ),
        ([], "{folder}/corpus_description.json: JSON: expected a JSON object, found []"),
        (
            {"has_thinlto": False},
            "{folder}/corpus_description.json: JSON: expected 'modules', found none",
        ),
        (
            BASE | {"modules": ["../m"]},
            "{folder}/corpus_description.json: module '../m': expected a name inside the corpus, "
            "found a '..' part",
        ),
        (
            BASE | {"modules": ["/etc/m"]},
            "{folder}/corpus_description.json: module '/etc/m': expected a relative name, found "
            "an absolute one",
        ),
        (
            BASE | {"modules": ["m", "gone"]},
            "module 'gone': expected bitcode at {folder}/gone.bc, found none",
        ),
        (BASE | {"modules": []}, "corpus '{folder}': expected at least one module, found none"),
        (
            BASE | {"has_thinlto": True},
            "corpus '{folder}': expected has_thinlto false, found true: its modules need "
            "ThinLTO's imports, which are not done here yet",
        ),
        (
            BASE | {"global_command_override": ["<UNSPECIFIED>"]},
            "corpus '{folder}': key 'global_command_override': expected the clang -cc1 command "
            "line of its modules, found the placeholder '<UNSPECIFIED>': put the command line "
            "there",
        ),
    ],
)
def test_manifests_that_cannot_be_used(tmp_path: Path, manifest: object, message: str) -> None:
    make(tmp_path, manifest, "m.bc")
    with pytest.raises(CorpusError) as caught:
        Corpus.load(tmp_path)
    assert str(caught.value) == message.replace("{folder}", str(tmp_path))


def test_a_thinlto_corpus_can_be_asked_for(tmp_path: Path) -> None:
    make(tmp_path, BASE | {"has_thinlto": True}, "m.bc")
    assert Corpus.load(tmp_path, allow_thinlto=True).has_thinlto


def test_no_manifest(tmp_path: Path) -> None:
    with pytest.raises(CorpusError) as caught:
        Corpus.load(tmp_path / "none")
    assert str(caught.value) == (
        f"corpus '{tmp_path}/none': expected corpus_description.json in it, found none; "
        "'mlgo-gym corpus build' makes a corpus"
    )


def test_modules_that_cannot_be_read(tmp_path: Path) -> None:
    corpus = Corpus.load(make(tmp_path, BASE, "m.bc"))
    with pytest.raises(CorpusError) as unknown:
        _ = corpus["other"]
    assert (
        str(unknown.value) == f"corpus '{tmp_path}': expected one of its 1 modules, found 'other'"
    )
    (tmp_path / "m.cmd").write_bytes(b"clang\0-c")
    with pytest.raises(ModuleError) as command:
        _ = corpus["m"]
    assert str(command.value) == (
        f"module 'm': {tmp_path}/m.cmd: expected '-cc1' as the first argument, found 'clang'"
    )
    os.unlink(tmp_path / "m.cmd")  # noqa: PTH108
    os.unlink(tmp_path / "m.bc")  # noqa: PTH108
    with pytest.raises(ModuleError) as gone:
        _ = corpus["m"]
    assert str(gone.value) == (
        f"module 'm': cannot read '{tmp_path}/m.bc': No such file or directory"
    )


def test_a_name_that_was_cut_short(tmp_path: Path) -> None:
    manifest = {"modules": ["src/lua/lvm.c"], "has_thinlto": False}
    corpus = Corpus.load(make(tmp_path, manifest, "src/lua/lvm.c.bc"))
    for name in ("lvm.c", "src/lua/lvm"):
        with pytest.raises(CorpusError, match=r"; did you mean 'src/lua/lvm\.c'\?$"):
            _ = corpus[name]


def test_single_files(tmp_path: Path) -> None:
    (tmp_path / "f.ll").write_text("define void @f() { ret void }")
    module = Module.from_file(tmp_path / "f.ll")
    assert (module.name, module.is_text, module.command) == ("f.ll", True, None)
    with pytest.raises(ModuleError, match=r"^module 'g\.bc': cannot read '.*g\.bc': No such file"):
        Module.from_file(tmp_path / "g.bc")


def test_the_sample_corpus(sample: Corpus) -> None:
    assert len(sample) == 22
    for name in sample:
        assert sample[name].data.startswith(b"BC\xc0\xde")
        assert "-Oz" in (sample[name].command or ())
        assert not any("/" in argument for argument in sample[name].command or ())

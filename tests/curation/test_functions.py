"""Corpora of single functions: names, commands, and what compilers make of them."""

from __future__ import annotations

import json
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from corpus_tools.errors import OutputError
from mlgo_gym.corpus._corpus import Corpus, Module
from mlgo_gym.curation._functions import file_name, split_functions, split_module
from mlgo_gym.curation._split import _link
from mlgo_gym.errors import CorpusError, OptionsError
from mlgo_gym.llvm._compiler import Compiler, options_of
from mlgo_gym.llvm.worker import _binding as binding
from mlgo_gym.problems._inlining_for_size import InliningForSize, always
from tests.curation.make import make_corpus, program

CALLS = """
target triple = "x86_64-pc-linux-gnu"
define internal i32 @callee(i32 %x) noinline { %y = mul i32 %x, %x ret i32 %y }
define i32 @caller(i32 %x) { %a = call i32 @callee(i32 %x) ret i32 %a }
"""


def test_a_corpus_of_functions(
    small: Corpus, compiler: Compiler, clang22: str, tmp_path: Path
) -> None:
    result = split_functions(small, tmp_path / "out", minimum_instructions=5, jobs=2)
    corpus = Corpus.load(tmp_path / "out")
    assert corpus.names == result.modules
    assert not result.failures
    assert {name.partition("/")[0] for name in corpus} == set(small)
    info = json.loads((tmp_path / "out/corpus_info.json").read_text())
    assert info["optimized"]
    assert info["sha256"] == {name: small[name].sha256 for name in small}
    for name in corpus.names[:5]:
        module = corpus[name]
        whole = small[name.partition("/")[0]].command or ()
        assert module.command == (*whole, "-disable-llvm-passes")
        ours = compiler.compile_module(module, keep_object=True)
        assert ours.settings["run_passes"] is False
        path = corpus.folder / f"{name}.bc"
        command = [clang22, *(module.command or ()), "-x", "ir", str(path), "-o", "x.o"]
        subprocess.run(command, cwd=tmp_path, check=True)
        clangs = binding.section_contents((tmp_path / "x.o").read_bytes(), ".text")
        assert binding.section_contents(ours.object_bytes or b"", ".text") == clangs


def test_passes_are_not_run_again(compiler: Compiler) -> None:
    module = Module("x", CALLS.replace(" noinline", "").encode(), ("-cc1", "-O2"), is_text=True)
    optimised = compiler.compile_module(module)
    as_it_is = Module("x", module.data, ("-cc1", "-O2", "-disable-llvm-passes"), is_text=True)
    plain = compiler.compile_module(as_it_is)
    assert plain.text_size_bytes > optimised.text_size_bytes  # nothing was inlined


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (("-cc1", "-Oz"), ("-cc1", "-Oz", "-disable-llvm-passes")),
        (None, ("-cc1", "-O2", "-disable-llvm-passes")),
    ],
)
def test_commands(
    compiler: Compiler, command: tuple[str, ...] | None, expected: tuple[str, ...]
) -> None:
    module = Module("x", CALLS.encode(), command, is_text=True)
    assert {each.command for each in split_module(compiler, module)} == {expected}


def test_what_was_compiled_before_does_not_count(own_compiler: Compiler, small: Corpus) -> None:
    """Nobody is asked any more, and the worker's targets are forgotten."""
    module = small["json_write.c"]
    before = split_module(own_compiler, module)
    own_compiler.compile_module(module, problem=InliningForSize(), policy=always)
    assert split_module(own_compiler, module) == before


def test_options_of_llvm_hold(own_compiler: Compiler, small: Corpus) -> None:
    module = small["json_write.c"]
    options = replace(options_of(module), llvm_options=("-inline-threshold=1000",))
    found = split_module(own_compiler, module, options)
    assert len(found) < len(split_module(own_compiler, module))


def test_another_level(tmp_path: Path) -> None:
    corpus = Corpus.load(make_corpus(tmp_path / "in", {"m": program("m")}))
    split_functions(corpus, tmp_path / "out", opt_level="O3")
    functions = Corpus.load(tmp_path / "out")
    for name in functions:
        assert functions[name].command == ("-cc1", "-O2", "-O3", "-disable-llvm-passes")


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        ("main", "main"),
        ("_ZN4Sass4EvalC2Ev", "_ZN4Sass4EvalC2Ev"),
        ("a/b", "a%2Fb"),
        ("..", "%2E."),
        (".hidden", "%2Ehidden"),
        ("über", "%C3%BCber"),
        ("50%", "50%25"),
    ],
)
def test_names_of_files(function: str, expected: str) -> None:
    assert file_name(function) == expected


def test_long_names_stay_apart() -> None:
    names = {file_name("x" * 300), file_name("x" * 301), file_name("x" * 299 + "y")}
    assert {len(name) for name in names} == {200}
    assert len(names) == 3


def test_modules_that_cannot_be_read(tmp_path: Path) -> None:
    folder = make_corpus(tmp_path / "in", {"bad": b"BC\xc0\xde", "good": program("good")})
    result = split_functions(Corpus.load(folder), tmp_path / "out")
    assert result.failures == {
        "bad": "module 'bad': LLVM bitcode parsing error\nExpected a single module"
    }
    assert set(result.modules) == {"good/good_0", "good/good_1"}


def test_nothing_is_left(tmp_path: Path) -> None:
    corpus = Corpus.load(make_corpus(tmp_path / "in", {"m": program("m")}))
    with pytest.raises(CorpusError) as caught:
        split_functions(corpus, tmp_path / "out", minimum_instructions=1000)
    assert str(caught.value) == "corpus: expected a function that is long enough, found none"
    assert sorted(each.name for each in tmp_path.iterdir()) == ["in"]


def test_bad_input(tmp_path: Path) -> None:
    corpus = Corpus.load(make_corpus(tmp_path / "in", {"m": program("m")}))
    (tmp_path / "out").mkdir()
    (tmp_path / "out/notes.txt").write_text("mine")
    with pytest.raises(OutputError) as output:
        split_functions(corpus, tmp_path / "out")
    assert str(output.value) == (
        f"output {tmp_path}/out: expected a corpus, found a folder without corpus_description.json"
    )
    with pytest.raises(OptionsError) as level:
        split_functions(corpus, tmp_path / "new", opt_level="O9")
    assert (
        str(level.value) == "opt_level: expected one of "
        "O0, O1, O2, O3, Os, Oz, Os+attributes, Oz+attributes, found 'O9'"
    )
    with pytest.raises(OptionsError) as jobs:
        split_functions(corpus, tmp_path / "new", jobs=0)
    assert str(jobs.value) == "jobs: expected a number above 0, found 0"


def test_files_are_linked_or_else_copied(tmp_path: Path) -> None:
    """Where a link is refused, here since there is a file of that name, the bytes go there."""
    source, target = tmp_path / "source", tmp_path / "new" / "target"
    source.write_bytes(b"new")
    _link(source, target)
    assert target.samefile(source)
    target.unlink()
    target.write_bytes(b"old")
    _link(source, target)
    assert target.read_bytes() == b"new"
    assert not target.samefile(source)

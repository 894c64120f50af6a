"""Functions that the embedded LLVM makes local, by the rules of ``mlgo-cc``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mlgo_gym import Compiler, Corpus
from mlgo_gym.corpus import SAMPLE_CORPUS, Module
from mlgo_gym.llvm import LocalizeRequest, SymbolsRequest, local_symbols, name_hash
from mlgo_gym.rollout import Code, linked_text_bytes
from tests.cli.command import run

F = "$f = comdat any\ndefine linkonce_odr {} @f() {} comdat {{ ret void }}\n"
PLAIN = F.format("void", "")
UNNAMED = F.format("void", "unnamed_addr")
TAKEN = PLAIN + "declare void @g(ptr)\ndefine void @h() { call void @g(ptr @f) ret void }"
LOCAL = {
    "nothing is in its way": PLAIN,
    "it is called": PLAIN + "define void @h() { call void @f() ret void }",
    "it is in a table of virtual functions": PLAIN + "@_ZTV1T = constant [1 x ptr] [ptr @f]",
    "its address does not matter": UNNAMED + TAKEN.removeprefix(PLAIN),
    "its alias can be local, too": PLAIN + "@_ZC1 = linkonce_odr alias void (), ptr @f",
    "it is hidden": PLAIN.replace("linkonce_odr", "linkonce_odr hidden"),
}
VISIBLE = {
    "its address is taken": TAKEN,
    "its address is in a variable": PLAIN + "@v = global ptr @f",
    "it is marked as used": PLAIN + '@llvm.used = appending global [1 x ptr] [ptr @f], section "m"',
    "assembly names it": PLAIN + 'module asm ".globl x\\0Ax = f"',
    "a variable is in its COMDAT": PLAIN + "@v = linkonce_odr global i8 0, comdat($f)",
    "it is an explicit instantiation": PLAIN.replace("linkonce_odr", "weak_odr"),
    "another object may see its alias": PLAIN + "@a = weak_odr alias void (), ptr @f",
    "another module has it": PLAIN.replace("@f", "@shared").replace("$f", "$shared"),
    "another module has its alias": PLAIN + "@shared = linkonce_odr alias void (), ptr @f",
    "it is code for a device": 'target triple = "nvptx64-nvidia-cuda"\n' + PLAIN,
}


def local_functions(text: str, *, exported: bool = False) -> int:
    """How many functions become local: they are defined for no other module."""
    module = Module.from_ir(text)
    request = LocalizeRequest(True, (name_hash("shared"),), exported, local_symbols())
    with Compiler() as compiler:
        answer, data = compiler.inquire(module, request)
        before, _ = compiler.inquire(module, SymbolsRequest(True))
        after, _ = compiler.inquire(Module("made", data), SymbolsRequest(False))
    assert len(before["defined"]) - len(after["defined"]) == answer["functions"]
    return int(answer["functions"])


@pytest.mark.parametrize("text", LOCAL.values(), ids=LOCAL)
def test_a_function_becomes_local_where(text: str) -> None:
    assert local_functions(text) == 1


@pytest.mark.parametrize("text", VISIBLE.values(), ids=VISIBLE)
def test_a_function_stays_visible_where(text: str) -> None:
    assert local_functions(text) == 0


def test_only_hidden_functions_change_where_a_link_says_what_is_exported() -> None:
    assert local_functions(PLAIN, exported=True) == 0
    assert local_functions(LOCAL["it is hidden"], exported=True) == 1


def test_a_package_links_smaller_and_a_corpus_of_it_is_as_good_as_another(tmp_path: Path) -> None:
    local = tmp_path / "local"
    command = ("project", "--corpus", SAMPLE_CORPUS, "--output", "p.txt", "--local", local)
    counts = json.loads(run(*command, "--json", cwd=tmp_path).stdout)["local_functions"]
    sample, made = Corpus.load(SAMPLE_CORPUS), Corpus.load(local)
    assert made.names == sample.names == tuple(counts)
    with Compiler() as compiler:
        plain, smaller = (
            {name: Code.of(compiler.compile_module(corpus[name])) for name in sample}
            for corpus in (sample, made)
        )
    assert linked_text_bytes(list(smaller.values())) < linked_text_bytes(list(plain.values()))
    unchanged = {name for name, count in counts.items() if not count}
    assert 0 < len(unchanged) < len(sample)
    assert all(plain[name] == smaller[name] for name in unchanged)


def test_a_folder_that_is_no_corpus_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "local").mkdir()
    (tmp_path / "local" / "notes.txt").write_text("mine")
    command = ("project", "--corpus", SAMPLE_CORPUS, "--output", "p.txt", "--local", "local")
    done = run(*command, cwd=tmp_path)
    assert done.returncode != 0
    assert "expected an empty folder or one with corpus_description.json" in done.stderr
    assert (tmp_path / "local" / "notes.txt").read_text() == "mine"

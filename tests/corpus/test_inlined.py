"""Code by the calls that it came of: the parts add up, and levels hold each other."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from mlgo_gym.corpus._corpus import Corpus, Module
from mlgo_gym.corpus._functions import function_sizes
from mlgo_gym.corpus._inlined import FunctionCode, function_code
from mlgo_gym.llvm._compiler import Compiler
from mlgo_gym.llvm._task import Task
from mlgo_gym.problems._inlining_for_size import InliningForSize
from tests.conftest import require
from tests.llvm.test_sites import LEVELS


def described(compiler: Compiler, module: Module, answer: int) -> bytes:
    task = Task(sites=True, debug_info=True)
    with compiler.start(module, InliningForSize(), task=task, keep_object=True) as compilation:
        while compilation.next_observation() is not None:
            compilation.answer(answer)
        return compilation.result.object_bytes or b""


def test_an_address_under_three_levels_is_of_all_three(compiler: Compiler) -> None:
    code = function_code(described(compiler, Module.from_ir(LEVELS), 1))
    assert set(code) == {"top"}
    found = code["top"].inlined
    assert [(each.callee, len(each.ids)) for each in found] == [
        ("first", 1), ("second", 2), ("third", 3),
    ] * 2  # fmt: skip
    for outer, middle, inner in (found[:3], found[3:]):
        assert inner.ids[1:] == middle.ids
        assert middle.ids[1:] == outer.ids
        assert inner.size_bytes > 0
        assert inner.own_bytes == inner.size_bytes
        assert middle.own_bytes == middle.size_bytes - inner.size_bytes == 0
        assert outer.own_bytes == outer.size_bytes - middle.size_bytes > 0
        assert all(
            any(low <= start and end <= high for low, high in outer.ranges)
            for start, end in inner.ranges
        )


@pytest.mark.parametrize("module", ["matrix.cpp", "regex_parse.c"])
def test_the_parts_add_up(compiler: Compiler, sample: Corpus, module: str) -> None:
    data = described(compiler, sample[module], 1)
    sizes = function_sizes(data)
    for name, function in function_code(data).items():
        parts = function.rest_bytes + sum(each.own_bytes for each in function.inlined)
        assert parts == function.size_bytes == sizes[name].size_bytes
        assert function.rest_bytes >= 0
        assert all(each.own_bytes >= 0 for each in function.inlined)


def test_functions_without_calls(compiler: Compiler) -> None:
    module = Module.from_ir("define i32 @f(i32 %x) { ret i32 %x }")
    assert function_code(described(compiler, module, 0)) == {"f": FunctionCode("f", 3)}


def test_names_that_are_not_utf_8(compiler: Compiler) -> None:
    """Each is a function of its own, by the name that its decisions have."""
    text = "".join(
        f'define i32 @"{name}"(i32 %x) {{ %y = call i32 @g(i32 %x) ret i32 %y }}\n'
        for name in (r"\FEz", r"\FFz", "\u00e9")
    )
    module = Module.from_ir("define internal i32 @g(i32 %x) { ret i32 %x }\n" + text)
    assert set(function_code(described(compiler, module, 1))) == {r"\xfez", r"\xffz", "\u00e9"}


def test_an_object_without_debug_information(compiler: Compiler, sample: Corpus) -> None:
    made = compiler.compile_module(sample["digest.c"], keep_object=True)
    assert function_code(made.object_bytes or b"") == {}


def test_stripped_objects(compiler: Compiler, sample: Corpus, tmp_path: Path) -> None:
    """Without debug information nothing is told of any function."""
    strip = require("strip", "binutils")
    path = tmp_path / "digest.o"
    path.write_bytes(described(compiler, sample["digest.c"], 1))
    whole = function_code(path.read_bytes())
    subprocess.run([strip, "--strip-debug", path], check=True)
    assert function_code(path.read_bytes()) == {}
    subprocess.run([strip, path], check=True)
    assert function_code(path.read_bytes()) == {}
    assert len(whole) > 3

"""COMDAT groups as a reader of another project sees them, on targets of all ELF layouts."""

from __future__ import annotations

import struct
from typing import Any

import lief
import pytest

from mlgo_gym.corpus._corpus import Module
from mlgo_gym.corpus._functions import comdat_groups, function_sizes
from mlgo_gym.llvm._compiler import Compiler
from mlgo_gym.llvm.command._options import CompileOptions

TEXT = """
target triple = "{triple}"
$shared = comdat any
$pair = comdat any
$alone = comdat nodeduplicate
define linkonce_odr i32 @shared(i32 %x) noinline comdat {{ ret i32 %x }}
define weak_odr i32 @one(i32 %x) comdat($pair) {{
  %y = add i32 %x, 1
  ret i32 %y
}}
define weak_odr i32 @two(i32 %x) comdat($pair) {{
  %y = call i32 @shared(i32 %x)
  ret i32 %y
}}
define i32 @pair(i32 %x) comdat {{ ret i32 7 }}
define i32 @alone(i32 %x) comdat {{ ret i32 8 }}
define i32 @own(i32 %x) {{ ret i32 9 }}
"""
TRIPLES = (
    "x86_64-unknown-linux-gnu",
    "i686-unknown-linux-gnu",
    "powerpc64-unknown-linux-gnu",
    "powerpc-unknown-linux-gnu",
)


@pytest.mark.parametrize("triple", TRIPLES)
def test_groups(triple: str, compiler: Compiler) -> None:
    module = Module.from_ir(TEXT.format(triple=triple))
    result = compiler.compile_module(module, CompileOptions("Oz"), keep_object=True)
    assert result.object_bytes is not None
    elf = lief.ELF.parse(result.object_bytes)
    assert elf is not None
    sections = list(elf.sections)
    groups = comdat_groups(result.object_bytes)
    assert groups == _groups_by_lief(elf, triple.startswith("powerpc"))
    names = {str(sections[index].name): group for index, group in groups.items()}
    code = {name: group for name, group in names.items() if name.startswith(".text")}
    assert code == {
        ".text.shared": "shared", ".text.one": "pair", ".text.two": "pair", ".text.pair": "pair",
    }  # fmt: skip
    by_name = dict(zip((name for name, _ in result.sections), result.comdat_groups, strict=True))
    assert {name: by_name[name] for name in code} == code
    assert by_name[".text.alone"] == by_name[".text"] == ""
    sizes = {str(each.name): int(each.size) for each in sections}
    assert result.comdat_text_bytes() == {
        "shared": sizes[".text.shared"],
        "pair": sizes[".text.one"] + sizes[".text.two"] + sizes[".text.pair"],
    }


def test_functions_of_groups_that_a_linker_keeps_one_of(compiler: Compiler) -> None:
    """All copies of a group that is no COMDAT stay, as all of a function in none do."""
    module = Module.from_ir(TEXT.format(triple=TRIPLES[0]))
    result = compiler.compile_module(module, CompileOptions("Oz"), keep_object=True)
    functions = function_sizes(result.object_bytes or b"")
    assert {name: each.is_comdat for name, each in functions.items()} == {
        "shared": True, "one": True, "two": True, "pair": True, "alone": False, "own": False,
    }  # fmt: skip
    grouped = sum(each.size_bytes for each in functions.values() if each.is_comdat)
    assert 0 < grouped <= sum(result.comdat_text_bytes().values())


def test_another_format_has_none(compiler: Compiler) -> None:
    module = Module.from_ir(TEXT.format(triple="x86_64-pc-windows-msvc"))
    result = compiler.compile_module(module, CompileOptions("Oz"), keep_object=True)
    assert result.object_bytes
    assert function_sizes(result.object_bytes) == {}
    assert set(result.comdat_groups) == {""}
    assert result.comdat_text_bytes() == {}


def test_a_count_that_the_header_has_no_room_for(compiler: Compiler) -> None:
    """From 65,280 sections on, the count in the ELF header is 0."""
    module = Module.from_ir(TEXT.format(triple=TRIPLES[0]))
    result = compiler.compile_module(module, CompileOptions("Oz"), keep_object=True)
    data = bytearray(result.object_bytes or b"")
    expected = comdat_groups(bytes(data))
    struct.pack_into("<H", data, 60, 0)
    assert comdat_groups(bytes(data)) == expected


def _groups_by_lief(elf: Any, is_big: bool) -> dict[int, str]:
    symbols = [str(each.name) for each in elf.symtab_symbols]
    groups: dict[int, str] = {}
    for section in elf.sections:
        if section.type == lief.ELF.Section.TYPE.GROUP:
            words = struct.unpack(f"{'>' if is_big else '<'}{section.size // 4}I", section.content)
            if words[0] == 1:
                groups |= dict.fromkeys(words[1:], symbols[section.information])
    return groups

"""The functions of an object, and how large their code is."""

from __future__ import annotations

from dataclasses import dataclass

from mlgo_gym.objects._comdat import comdat_groups
from mlgo_gym.objects._elf import function_symbols, read_elf


@dataclass(frozen=True, slots=True)
class FunctionSize:
    """A function in an object.

    Attributes:
        size_bytes: the size of its code.
        is_comdat: a linker keeps one of the copies that several objects have.

    >>> FunctionSize(size_bytes=16, is_comdat=False).size_bytes
    16
    """

    size_bytes: int
    is_comdat: bool


def function_sizes(data: bytes) -> dict[str, FunctionSize]:
    """The functions of an ELF object by name; empty for other formats.

    Args:
        data: the object's bytes, as LLVM wrote them.

    >>> from mlgo_gym import Compiler, Module
    >>> module = Module.from_ir("define i32 @f(i32 %x) { ret i32 %x }")
    >>> with Compiler() as compiler:
    ...     made = compiler.compile_module(module, keep_object=True)
    >>> list(function_sizes(made.object_bytes))
    ['f']
    """
    elf = read_elf(data)
    if elf is None:
        return {}
    groups, count = comdat_groups(data), len(elf.sections)
    return {
        each.name: FunctionSize(each.size_bytes, each.section in groups)
        for each in function_symbols(elf)
        if each.size_bytes and each.section < count
    }

"""The functions of ELF files, as LIEF reads them, and how large their code is."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mlgo_gym.corpus._comdat import comdat_groups

if TYPE_CHECKING:
    import lief


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
        str(each.name): FunctionSize(int(each.size), each.shndx in groups)
        for each in function_symbols(elf)
        if each.size and each.shndx < count  # others are not defined here
    }


def read_elf(data: bytes) -> lief.ELF.Binary | None:
    """Read the bytes of an object or a linked file; ``None`` where they are no ELF file's."""
    import lief  # noqa: PLC0415 (half a second)

    lief.logging.disable()  # which says on standard error what it cannot read
    settings = lief.ELF.ParserConfig()
    for name in ("relocations", "dyn_symbols", "symbol_versions", "notes"):
        setattr(settings, f"parse_{name}", False)
    settings.parse_overlay = False
    elf = lief.ELF.parse(data, settings) if data else None
    return elf if isinstance(elf, lief.ELF.Binary) else None


def function_symbols(elf: lief.ELF.Binary) -> Iterator[lief.ELF.Symbol]:
    """The functions of its symbol table, in its order; a stripped file has none."""
    import lief  # noqa: PLC0415 (half a second)

    for symbol in elf.symtab_symbols:
        if symbol.type == lief.ELF.Symbol.TYPE.FUNC:
            yield symbol

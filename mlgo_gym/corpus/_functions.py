"""The functions of ELF files, as LIEF reads them: how large, and of which COMDAT group they are.

A group is a section of type ``SHT_GROUP``: a word of flags, then the indices of its members. Its
header's ``sh_link`` is the symbol table and its ``sh_info`` the symbol whose name is the signature.
Of all groups of one signature a linker takes the first, with all its members, and drops the others
(System V generic ABI, "Section Groups"). LLVM's C interface does not tell a section's group, so the
few fields are read here: in the worker process, on objects that LLVM has just made there.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import lief


import struct
from typing import Final


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
    from corpus_tools.lief_library import lief  # noqa: PLC0415 (half a second)

    lief.logging.disable()  # which says on standard error what it cannot read
    settings = lief.ELF.ParserConfig()
    for name in ("relocations", "dyn_symbols", "symbol_versions", "notes"):
        setattr(settings, f"parse_{name}", False)
    settings.parse_overlay = False
    elf = lief.ELF.parse(data, settings) if data else None
    return elf if isinstance(elf, lief.ELF.Binary) else None


def function_symbols(elf: lief.ELF.Binary) -> Iterator[lief.ELF.Symbol]:
    """The functions of its symbol table, in its order; a stripped file has none."""
    from corpus_tools.lief_library import lief  # noqa: PLC0415 (half a second)

    for symbol in elf.symtab_symbols:
        if symbol.type == lief.ELF.Symbol.TYPE.FUNC:
            yield symbol


_MAGIC: Final = b"\x7fELF"
_LITTLE_ENDIAN: Final = 1
_SHT_GROUP: Final = 17
_GRP_COMDAT: Final = 1


@dataclass(frozen=True, slots=True)
class _Layout:
    """The differences of ELF's classes: the place of ``e_shoff``, and packed headers."""

    section_table: str
    section_table_offset: int
    section: str
    symbol_bytes: int


_LAYOUTS: Final = {
    1: _Layout("I", 32, "10I", 16),
    2: _Layout("Q", 40, "IIQQQQIIQQ", 24),
}
"""By ``EI_CLASS``: 1 is 32 bits, 2 is 64 (``Elf32_Shdr`` and ``Elf64_Shdr`` of ``<elf.h>``)."""


@dataclass(frozen=True, slots=True)
class _Section:
    """The fields of a section's header that are needed."""

    type: int
    offset: int
    size: int
    link: int
    info: int


def comdat_groups(data: bytes) -> dict[int, str]:
    """The signature of the COMDAT group of each section of an ELF object that is in one, by index.

    >>> comdat_groups(b"something else")
    {}
    """
    if not data.startswith(_MAGIC):
        return {}
    order = "<" if data[5] == _LITTLE_ENDIAN else ">"
    sections = _sections(data, _LAYOUTS[data[4]], order)
    groups: dict[int, str] = {}
    for each in sections:
        if each.type == _SHT_GROUP:
            flags, *members = struct.unpack_from(f"{order}{each.size // 4}I", data, each.offset)
            if flags & _GRP_COMDAT:
                groups |= dict.fromkeys(members, _signature(data, sections, each, order))
    return groups


def _sections(data: bytes, layout: _Layout, order: str) -> list[_Section]:
    (start,) = struct.unpack_from(order + layout.section_table, data, layout.section_table_offset)
    header = struct.Struct(order + layout.section)
    # The table comes last in what LLVM writes, so its end is the object's, however many there are.
    table = data[start : start + (len(data) - start) // header.size * header.size]
    return [
        _Section(fields[1], fields[4], fields[5], fields[6], fields[7])
        for fields in header.iter_unpack(table)
    ]


def _signature(data: bytes, sections: list[_Section], group: _Section, order: str) -> str:
    symbols = sections[group.link]
    symbol_bytes = _LAYOUTS[data[4]].symbol_bytes
    (name,) = struct.unpack_from(f"{order}I", data, symbols.offset + group.info * symbol_bytes)
    start = sections[symbols.link].offset + name
    return data[start : data.index(b"\0", start)].decode("utf-8", "replace")

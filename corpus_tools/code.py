"""The code in object files, and where that of two objects differs: ELF, Mach-O and COFF."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest

from corpus_tools.errors import ExtractionError
from corpus_tools.lief_library import lief
from corpus_tools.object_file import Binary, parse_binary

_PRIVATE_PREFIX = ".L"


@dataclass(frozen=True, slots=True)
class CodeSection:
    """A section that holds machine code.

    Attributes:
        name: the section's name.
        content: its bytes, before relocation.
        relocations: what the linker puts in, in order: type, symbol or section, and addend.
    """

    name: str
    content: bytes = field(repr=False)
    relocations: tuple[str, ...] = field(repr=False)


def code_sections(data: bytes, name: str) -> tuple[CodeSection, ...]:
    """The sections of an object that hold code, in its order; empty ones are left out.

    Args:
        data: the object's bytes.
        name: what it is called in errors.

    Raises:
        ExtractionError: it is no object that can be read; the message names it.
    """
    try:
        return _code_of(parse_binary(data, has_relocations=True))
    except (ExtractionError, ValueError) as error:  # a name that is no UTF-8
        raise ExtractionError(f"object {name}: {error}") from error


def _code_of(binary: Binary) -> tuple[CodeSection, ...]:
    match binary:
        case lief.ELF.Binary():
            return _elf(binary, lief.ELF.Section.FLAGS.EXECINSTR)
        case lief.MachO.Binary():
            flags = lief.MachO.Section.FLAGS
            is_code = (flags.PURE_INSTRUCTIONS, flags.SOME_INSTRUCTIONS)
            return _others(each for each in binary.sections if any(map(each.has, is_code)))
    code = lief.PE.Section.CHARACTERISTICS.CNT_CODE
    return _others(each for each in binary.sections if each.has_characteristic(code))


def difference(expected: Sequence[CodeSection], found: Sequence[CodeSection]) -> str | None:
    """The first place where the code of two objects differs, in words; ``None``: they are equal.

    Args:
        expected: the sections of one object, in its order.
        found: those of the other.
    """
    for left, right in zip_longest(expected, found):
        if left is None:
            return f"{right.name}: expected none, found {len(right.content)} bytes"
        if right is None:
            return f"{left.name}: expected {len(left.content)} bytes, found none"
        if left != right:
            return _between(left, right)
    return None


def _between(left: CodeSection, right: CodeSection) -> str:
    if left.name != right.name:
        return f"expected {left.name} next, found {right.name}"
    sizes = len(left.content), len(right.content)
    if sizes[0] != sizes[1]:
        return f"{left.name}: expected {sizes[0]} bytes, found {sizes[1]}"
    if left.content == right.content:
        return f"{left.name}: the same bytes with other relocations"
    pairs = zip(left.content, right.content, strict=True)
    offset = next(at for at, (one, other) in enumerate(pairs) if one != other)
    return f"{left.name}: other bytes from offset {offset} of {sizes[0]}"


def _elf(elf: lief.ELF.Binary, code: lief.ELF.Section.FLAGS) -> tuple[CodeSection, ...]:
    names = [str(each.name) for each in elf.sections]
    targets = defaultdict[int, list[str]](list)
    for each in elf.object_relocations:
        if each.section is not None:
            targets[each.section.offset].append(_elf_relocation(each, names))
    return tuple(
        CodeSection(str(each.name), bytes(each.content), tuple(targets[each.offset]))
        for each in elf.sections
        if each.has(code) and each.size
    )


def _elf_relocation(relocation: lief.ELF.Relocation, names: Sequence[str]) -> str:
    symbol = relocation.symbol
    if symbol is None:
        return f"{relocation.type} {relocation.addend}"
    target = str(symbol.name)
    # A section's own symbol has no name, and that of a private label is LLVM's whim.
    if (not target or target.startswith(_PRIVATE_PREFIX)) and symbol.shndx < len(names):
        target = f"{names[symbol.shndx]} + {symbol.value}"
    return f"{relocation.type} {target} {relocation.addend}"


def _others(
    sections: Iterable[lief.MachO.Section | lief.COFF.Section],
) -> tuple[CodeSection, ...]:
    return tuple(
        CodeSection(
            str(each.name), bytes(each.content), tuple(map(_other_relocation, each.relocations))
        )
        for each in sections
        if each.size
    )


def _other_relocation(relocation: lief.MachO.Relocation | lief.COFF.Relocation) -> str:
    symbol = relocation.symbol
    target = "" if symbol is None else str(symbol.name)
    return f"{relocation.type} {target}"

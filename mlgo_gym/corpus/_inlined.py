"""The calls that an object's code came from, as its debug information tells it.

Lines are ids of calls (`mlgo_gym.llvm.Task.debug_info`). DWARF has for each call that was inlined
a ``DW_TAG_inlined_subroutine`` with the line of the call and the addresses of its code, inside that
of the call it came with. pyelftools reads it.
"""

from __future__ import annotations

import io
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from elftools.dwarf.die import DIE
    from elftools.elf.elffile import ELFFile

_SUBPROGRAM: Final = "DW_TAG_subprogram"
_INLINED: Final = "DW_TAG_inlined_subroutine"


@dataclass(frozen=True, slots=True)
class InlinedCode:
    """The code that one inlined call left in one function.

    Attributes:
        function: the symbol of the function that the code is in.
        callee: the symbol of the function that was called.
        ids: of the call and those through which it came, the innermost first; 0 where LLVM has
            merged several.
        ranges: the addresses of its code, each the first and the one behind the last, in bytes
            from the function's start.
        inner_bytes: what of it is code of calls inside it.

    >>> code = InlinedCode("main", "add", (3,), ((4, 10), (20, 22)), inner_bytes=2)
    >>> code.size_bytes, code.own_bytes
    (8, 6)
    """

    function: str
    callee: str
    ids: tuple[int, ...]
    ranges: tuple[tuple[int, int], ...]
    inner_bytes: int = 0

    @property
    def size_bytes(self) -> int:
        """The size of its code, with that of calls inside it."""
        return sum(end - start for start, end in self.ranges)

    @property
    def own_bytes(self) -> int:
        """The size of its code alone."""
        return self.size_bytes - self.inner_bytes


@dataclass(frozen=True, slots=True)
class FunctionCode:
    """A function's code, by the inlined calls that it comes from.

    Attributes:
        name: the function's symbol.
        size_bytes: the size of its code.
        inlined: the code of inlined calls, outer ones before those inside them.

    >>> FunctionCode("main", 20, (InlinedCode("main", "add", (3,), ((4, 10),)),)).rest_bytes
    14
    """

    name: str
    size_bytes: int
    inlined: tuple[InlinedCode, ...] = field(default=(), repr=False)

    @property
    def rest_bytes(self) -> int:
        """The bytes that came of no call."""
        return self.size_bytes - sum(each.own_bytes for each in self.inlined)


def function_code(data: bytes) -> dict[str, FunctionCode]:
    """Return the functions of an ELF object by symbol, with the inlined calls in their code.

    A function is known by its place, since what LLVM has cloned has one name in DWARF.

    Args:
        data: the object's bytes; of one without debug information there are no functions.

    Raises:
        ValueError: it is no ELF object, one whose debug information pyelftools cannot read, or one
            of a thousand levels of calls.

    >>> from mlgo_gym import SAMPLE_CORPUS, Compiler, Corpus, InliningForSize
    >>> from mlgo_gym.llvm import Task
    >>> module = Corpus.load(SAMPLE_CORPUS)["digest.c"]
    >>> with Compiler() as compiler:
    ...     task = Task(sites=True, debug_info=True)
    ...     compilation = compiler.start(module, None, task=task, keep_object=True)
    ...     ended = compilation.next_observation() is None
    ...     functions = function_code(compilation.result.object_bytes)
    >>> sum(each.size_bytes for each in functions.values()) <= compilation.result.text_size_bytes
    True
    """
    from elftools.common.exceptions import (  # noqa: PLC0415 - few commands read DWARF
        DWARFError,
        ELFError,
    )
    from elftools.construct.core import ConstructError  # noqa: PLC0415
    from elftools.elf.elffile import ELFFile  # noqa: PLC0415

    try:
        return {each.name: each for each in _functions(ELFFile(io.BytesIO(data)))}
    except (ELFError, DWARFError, ConstructError, LookupError, AttributeError) as error:
        raise ValueError(f"expected an ELF object with DWARF, found {error}") from error
    except RecursionError as error:  # pyelftools calls itself for each level
        expected = "calls inlined into each other a few hundred levels deep at most"
        raise ValueError(f"expected {expected}, found more") from error


def _functions(elf: ELFFile) -> Iterator[FunctionCode]:
    information, symbols = elf.get_dwarf_info(), _Symbols(elf)
    for unit in information.iter_CUs():
        read = _Unit(information, unit, symbols)
        for entry in unit.get_top_DIE().iter_children():
            if entry.tag == _SUBPROGRAM and (ranges := read.ranges(entry)):
                name, start = read.symbol(entry), ranges[0][0]
                size_bytes = sum(high - low for low, high in ranges)
                yield FunctionCode(name, size_bytes, read.inlined(entry, name, start))


class _Symbols:
    """The functions of an object by section and address, and the sections of relocated places."""

    def __init__(self, elf: Any) -> None:
        table = elf.get_section_by_name(".symtab")
        thumb = elf["e_machine"] == "EM_ARM"  # bit 0 of an address says so there
        self._names: defaultdict[tuple[Any, int], list[str]] = defaultdict(list)
        for symbol in table.iter_symbols() if table else ():
            if symbol["st_info"]["type"] == "STT_FUNC":
                address = symbol["st_value"] & ~1 if thumb else symbol["st_value"]
                self._names[symbol["st_shndx"], address].append(_name_of(elf, table, symbol))
        self._sections: dict[tuple[str, int], Any] = {}
        for section in (".debug_info", ".debug_addr"):
            relocations = elf.get_section_by_name(f".rela{section}")
            relocations = relocations or elf.get_section_by_name(f".rel{section}")
            for each in relocations.iter_relocations() if relocations and table else ():
                symbol = table.get_symbol(each["r_info_sym"])
                self._sections[section, each["r_offset"]] = symbol["st_shndx"]

    def name(self, place: tuple[str, int], address: int, preferred: str) -> str:
        """The function at an address that stands at a place of a section of DWARF."""
        names = self._names.get((self._sections.get(place), address), ())
        return preferred if preferred in names or not names else names[0]


def _name_of(elf: Any, table: Any, symbol: Any) -> str:
    """A symbol's name as sites have it; pyelftools has one sign for all that is not UTF-8."""
    from elftools.common.utils import parse_cstring_from_stream  # noqa: PLC0415

    if "\ufffd" not in symbol.name:
        return str(symbol.name)
    offset = table.stringtable["sh_offset"] + symbol["st_name"]
    name = parse_cstring_from_stream(elf.stream, offset) or b""
    return name.decode("utf-8", "backslashreplace")


class _Unit:
    """One compile unit."""

    def __init__(self, information: Any, unit: Any, symbols: _Symbols) -> None:
        self._unit = unit
        self._symbols = symbols
        self._lists = information.range_lists()
        self._top = unit.get_top_DIE().attributes

    def symbol(self, entry: DIE) -> str:
        """The symbol of a function that has code."""
        low = entry.attributes["DW_AT_low_pc"]
        place = ".debug_info", low.offset
        if low.form != "DW_FORM_addr":  # the number of an address in a table
            size = self._unit["address_size"]
            place = ".debug_addr", self._top["DW_AT_addr_base"].value + low.raw_value * size
        return self._symbols.name(place, low.value, self._name(entry))

    def inlined(self, entry: DIE, function: str, start: int) -> tuple[InlinedCode, ...]:
        """Return the code inlined in a function that starts at an address, outer calls first."""
        found: list[InlinedCode] = []
        inner_bytes: list[int] = []
        pending: list[tuple[DIE, tuple[int, ...], int]] = [
            (child, (), -1) for child in _inlined_in(entry)
        ]
        while pending:
            child, outer, parent = pending.pop(0)
            line = child.attributes.get("DW_AT_call_line")
            ids = (int(line.value) if line else 0, *outer)
            ranges = tuple((low - start, high - start) for low, high in self.ranges(child))
            found.append(InlinedCode(function, self._name(child), ids, ranges))
            inner_bytes.append(0)
            if parent >= 0:
                inner_bytes[parent] += found[-1].size_bytes
            index = len(found) - 1
            pending[:0] = [(each, ids, index) for each in _inlined_in(child)]
        return tuple(
            replace(code, inner_bytes=inner) for code, inner in zip(found, inner_bytes, strict=True)
        )

    def ranges(self, entry: DIE) -> list[tuple[int, int]]:
        """The addresses of an entry's code; none where all of it is gone."""
        attributes = entry.attributes
        if "DW_AT_ranges" in attributes:
            base = self._top.get("DW_AT_low_pc")
            return list(self._listed(attributes["DW_AT_ranges"].value, base.value if base else 0))
        if "DW_AT_low_pc" not in attributes:
            return []
        low, high = attributes["DW_AT_low_pc"].value, attributes["DW_AT_high_pc"]
        return [(low, high.value if high.form == "DW_FORM_addr" else low + high.value)]

    def _name(self, entry: DIE) -> str:
        while "DW_AT_abstract_origin" in entry.attributes:
            entry = entry.get_DIE_from_attribute("DW_AT_abstract_origin")
        named = entry.attributes.get("DW_AT_linkage_name") or entry.attributes.get("DW_AT_name")
        return named.value.decode("utf-8", "backslashreplace") if named else ""

    def _listed(self, offset: int, base: int) -> Iterator[tuple[int, int]]:
        for each in self._lists.get_range_list_at_offset(offset, self._unit):
            if hasattr(each, "base_address"):
                base = each.base_address
            elif each.is_absolute:
                yield each.begin_offset, each.end_offset
            else:
                yield base + each.begin_offset, base + each.end_offset


def _inlined_in(entry: DIE) -> list[DIE]:
    return [child for child in entry.iter_children() if child.tag == _INLINED]

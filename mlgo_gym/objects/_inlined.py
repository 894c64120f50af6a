"""Which code of an object came of which call, as its debug information tells it.

Lines are ids of calls (`mlgo_gym.llvm.Task.debug_info`). DWARF has for each call that was inlined
a ``DW_TAG_inlined_subroutine`` with the line of the call and the addresses of its code, inside that
of the call it came with. pyelftools reads it.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from elftools.dwarf.die import DIE

_SUBPROGRAM: Final = "DW_TAG_subprogram"
_INLINED: Final = "DW_TAG_inlined_subroutine"


@dataclass(frozen=True, slots=True)
class InlinedCode:
    """The code that came of one call in one function.

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
    """A function's code by the calls that it came of.

    Attributes:
        name: the function's symbol.
        size_bytes: the size of its code.
        inlined: what came of calls, outer ones before those inside them.

    >>> FunctionCode("main", 20, (InlinedCode("main", "add", (3,), ((4, 10),)),)).rest_bytes
    14
    """

    name: str
    size_bytes: int
    inlined: tuple[InlinedCode, ...] = field(default=(), repr=False)

    @property
    def rest_bytes(self) -> int:
        """What came of no call."""
        return self.size_bytes - sum(each.own_bytes for each in self.inlined)


def function_code(data: bytes) -> dict[str, FunctionCode]:
    """The functions of an ELF object by name, by the calls that their code came of.

    Args:
        data: the object's bytes; of one without debug information there are no functions.

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
    from elftools.elf.elffile import ELFFile  # noqa: PLC0415 - few commands read DWARF

    information = ELFFile(io.BytesIO(data)).get_dwarf_info()
    found: dict[str, FunctionCode] = {}
    for unit in information.iter_CUs():
        read = _Unit(information, unit)
        for entry in unit.get_top_DIE().iter_children():
            if entry.tag == _SUBPROGRAM and (ranges := read.ranges(entry)):
                name, start = read.name(entry), ranges[0][0]
                inlined = tuple(read.inlined(entry, name, start, ()))
                found[name] = FunctionCode(name, _size(ranges), inlined)
    return found


class _Unit:
    """One compile unit."""

    def __init__(self, information: Any, unit: Any) -> None:
        self._unit = unit
        self._lists = information.range_lists()

    def name(self, entry: DIE) -> str:
        while "DW_AT_abstract_origin" in entry.attributes:
            entry = entry.get_DIE_from_attribute("DW_AT_abstract_origin")
        named = entry.attributes.get("DW_AT_linkage_name") or entry.attributes.get("DW_AT_name")
        return named.value.decode("utf-8", "backslashreplace") if named else ""

    def inlined(
        self, entry: DIE, function: str, start: int, outer: tuple[int, ...]
    ) -> Iterator[InlinedCode]:
        """What is inlined in an entry of a function that starts at an address."""
        for child in entry.iter_children():
            if child.tag != _INLINED:
                continue
            line = child.attributes.get("DW_AT_call_line")
            ids = (int(line.value) if line else 0, *outer)
            inside = list(self.inlined(child, function, start, ids))
            ranges = tuple((low - start, high - start) for low, high in self.ranges(child))
            inner = sum(each.size_bytes for each in inside if len(each.ids) == len(ids) + 1)
            yield InlinedCode(function, self.name(child), ids, ranges, inner)
            yield from inside

    def ranges(self, entry: DIE) -> list[tuple[int, int]]:
        """The addresses of an entry's code; none where all of it is gone."""
        attributes = entry.attributes
        if "DW_AT_ranges" in attributes:
            base = self._unit.get_top_DIE().attributes.get("DW_AT_low_pc")
            return list(self._listed(attributes["DW_AT_ranges"].value, base.value if base else 0))
        if "DW_AT_low_pc" not in attributes:
            return []
        low, high = attributes["DW_AT_low_pc"].value, attributes["DW_AT_high_pc"]
        return [(low, high.value if high.form == "DW_FORM_addr" else low + high.value)]

    def _listed(self, offset: int, base: int) -> Iterator[tuple[int, int]]:
        for each in self._lists.get_range_list_at_offset(offset, self._unit):
            if hasattr(each, "base_address"):
                base = each.base_address
            elif each.is_absolute:
                yield each.begin_offset, each.end_offset
            else:
                yield base + each.begin_offset, base + each.end_offset


def _size(ranges: list[tuple[int, int]]) -> int:
    return sum(high - low for low, high in ranges)

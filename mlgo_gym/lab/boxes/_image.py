"""Objects of one function, linked for the addresses of a program that runs."""

from __future__ import annotations

import bisect
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Final

from corpus_tools.clang import Clang, link_image
from corpus_tools.errors import CorpusToolsError
from corpus_tools.scratch import scratch_folder
from mlgo_gym.base import InternalError, WorkloadError
from mlgo_gym.corpus import read_elf
from mlgo_gym.lab.boxes._described import ENTRY
from mlgo_gym.lab.boxes._tracing import jump

if TYPE_CHECKING:
    import lief

_RELA: Final = struct.Struct("<QQq")
_IRELATIVE: Final = 37
_TABLE: Final = "_GLOBAL_OFFSET_TABLE_"


@dataclass(frozen=True, slots=True)
class Symbol:
    """A function or a variable of a program.

    Attributes:
        name: of its symbol.
        address: where it is.
        size: in bytes.
        kind: ``FUNC``, ``OBJECT``, ``TLS`` or ``GNU_IFUNC``, as in ELF.
    """

    name: str
    address: int
    size: int
    kind: str


class Symbols:
    """The symbols of a linked program.

    Args:
        path: its file.
    """

    def __init__(self, path: Path) -> None:
        elf = _elf(path.read_bytes())
        self._by_name: dict[str, Symbol] = {}
        for each in elf.symtab_symbols:
            name = str(each.name)
            is_local = each.binding.name == "LOCAL"
            if each.shndx and name and not (is_local and name in self._by_name):
                place, size = int(each.value), int(each.size)
                self._by_name[name] = Symbol(name, place, size, each.type.name)
        self._places = dict(_places_of_chosen(elf))
        self._slots: dict[int, int] = {}

    def __contains__(self, name: str) -> bool:
        found = self._by_name.get(name)
        return found is not None and (found.kind != "GNU_IFUNC" or found.address in self._slots)

    def __getitem__(self, name: str) -> Symbol:
        return self._by_name[name]

    def choose(self, word: Callable[[int], int]) -> None:
        """Note the functions that the C library has chosen by the processor.

        Args:
            word: reads eight bytes of the program, once it has come to ``main``.
        """
        self._slots = {chooser: word(place) for chooser, place in self._places.items()}

    def address(self, name: str) -> int:
        """The address of what is called by a name; that of a function which was chosen."""
        found = self._by_name[name]
        return self._slots[found.address] if found.kind == "GNU_IFUNC" else found.address

    @cached_property
    def _sorted(self) -> list[Symbol]:
        kinds = {"FUNC", "OBJECT"}
        found = [each for each in self._by_name.values() if each.kind in kinds and each.size]
        return sorted(found, key=lambda each: each.address)

    def at(self, address: int) -> str | None:
        """The symbol at an address and the bytes from its start, if there is one."""
        place = bisect.bisect_right(self._sorted, address, key=lambda each: each.address) - 1
        if place < 0 or address >= self._sorted[place].address + self._sorted[place].size:
            return None
        found = self._sorted[place]
        return f"{found.name}+{address - found.address}" if address > found.address else found.name


def _elf(data: bytes) -> lief.ELF.Binary:
    if (elf := read_elf(data)) is None:
        raise InternalError("expected an ELF file, found none")
    return elf


def _places_of_chosen(elf: lief.ELF.Binary) -> Mapping[int, int]:
    """Where the address of each indirect function goes, by that of what chooses it."""
    return {
        int(addend): int(place)
        for section in elf.sections
        if section.type.name == "RELA"
        for place, info, addend in _RELA.iter_unpack(bytes(section.content))
        if info & 0xFFFFFFFF == _IRELATIVE
    }


@dataclass(frozen=True, slots=True)
class Image:
    r"""A candidate that is linked.

    Attributes:
        entry: the address of its code.
        parts: bytes by the address that they are loaded at.

    >>> Image(0x63000000, {0x63000000: b"\xc3"}).entry == 0x63000000
    True
    """

    entry: int
    parts: Mapping[int, bytes]

    def load(self, write: Callable[[int, bytes], None], start: int) -> None:
        """Put it where it belongs, and have the program's function go on there.

        Args:
            write: writes memory of the program.
            start: the address of the function's instruction that does nothing.
        """
        for address, data in self.parts.items():
            write(address, data)
        write(start, jump(start, self.entry))


def linked(
    made: bytes,
    function: str,
    *,
    clang: Clang,
    address: int,
    symbols: Symbols,
) -> Image:
    """Link the object of a candidate for a program.

    Args:
        made: the object.
        function: the name of the function that it defines.
        clang: what links it.
        address: where its code goes.
        symbols: of the program, which has chosen functions.
    """
    elf = _elf(made)
    needed = {str(each.name) for each in elf.symtab_symbols if not each.shndx and each.name}
    local_to_threads = {str(s.name) for s in elf.symtab_symbols if s.type.name == "TLS"}
    places: dict[str, int] = {}
    # Thread-local variables first: what their access calls would say less.
    ordered = sorted(needed - {_TABLE}, key=lambda name: (name not in local_to_threads, name))
    for name in ordered:
        known = name.removesuffix(ENTRY) if name == function + ENTRY else name
        if name in local_to_threads or (known in symbols and symbols[known].kind == "TLS"):
            expected = "expected no thread-local variable in what is boxed"
            raise WorkloadError(f"function {function!r}: {expected}, found {known!r}")
        if known not in symbols:
            found = f"expected what the candidate needs in the program, found no {known!r}"
            raise WorkloadError(f"function {function!r}: {found}")
        places[name] = symbols.address(known)
    with scratch_folder() as folder:
        source, output = folder / "candidate.o", folder / "candidate"
        source.write_bytes(made)
        try:
            link_image(clang, source, output, entry=function, address=address, symbols=places)
        except CorpusToolsError as error:
            raise WorkloadError(f"function {function!r}: cannot be linked: {error}") from error
        image = _elf(output.read_bytes())
    parts = {
        int(each.virtual_address): bytes(each.content)
        for each in image.segments
        if each.type.name == "LOAD" and each.physical_size
    }
    return Image(int(image.entrypoint), parts)

"""Offsets of functions in the library that holds LLVM, not only of exported ones.

llvmlite's library keeps its table of symbols. Files can be read by the host only, so it looks, and
a worker is told offsets from where the library is loaded.
"""

from __future__ import annotations

import functools
import mmap
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from mlgo_gym.base import EnvironmentSetupError
from mlgo_gym.llvm.inside import _call_site, _live_range, _local, _sites
from mlgo_gym.llvm.inside._library import library_path

_SECTIONS: Final = struct.Struct("<40xQ10xHHH")
"""Of a file's header: where the sections are described, how large, and how many they are."""
_SECTION: Final = struct.Struct("<4xI16xQQI12x8x")
"""Of a section: its type, place, size, and the section of its names."""
_SYMBOL: Final = np.dtype(
    [("name", "<u4"), ("about", "<u2"), ("section", "<u2"), ("value", "<u8"), ("size", "<u8")]
)
_TABLES: Final = (2, 11)  # SHT_SYMTAB, SHT_DYNSYM
_ELF: Final = b"\x7fELF\x02\x01"
_O1, _OZ = "_ZN4llvm17OptimizationLevel2O1E", "_ZN4llvm17OptimizationLevel2OzE"


def symbols() -> Mapping[str, int]:
    """Return the offsets in llvmlite's library of the functions and tables that are used.

    A library without its table of symbols has none of them.

    Raises:
        EnvironmentSetupError: the library cannot be read.
    """
    names = (*_call_site.CALL_SITE_SYMBOLS, *_sites.SYMBOLS, *_live_range.SYMBOLS)
    return offsets_of(names, library_path())


def local_symbols() -> Mapping[str, int]:
    """Return the offsets in llvmlite's library of the functions that make others local.

    Raises:
        EnvironmentSetupError: the library cannot be read, or lacks one.
    """
    found = offsets_of(_local.SYMBOLS, library_path())
    if missing := [name for name in _local.SYMBOLS if name not in found]:
        raise EnvironmentSetupError(
            f"local functions: expected the symbol {missing[0]!r} in llvmlite's library, found "
            "none; install the llvmlite that mlgo_gym asks for"
        )
    return found


def level_offset() -> int:
    """Return the offset of LLVM's constant for the level O1; 0 where it is not found."""
    try:
        found = offsets_of((_O1, _OZ), library_path())
    except EnvironmentSetupError:
        return 0
    return found[_O1] if len(found) > 1 else 0


@functools.cache
def offsets_of(names: Sequence[str], path: str) -> Mapping[str, int]:
    """Return the offsets of those symbols that a library has: ELF of 64 bits, little-endian.

    Raises:
        EnvironmentSetupError: the library cannot be read.
    """
    found: dict[str, int] = {}
    try:
        with (
            Path(path).open("rb") as file,
            mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as data,
        ):
            if data[: len(_ELF)] == _ELF:
                for table, text in _tables(data):
                    found = _found(table, text, names) | found
    except (OSError, ValueError, struct.error) as error:
        raise EnvironmentSetupError(f"{path}: its symbols cannot be read: {error}") from error
    return found


def _tables(data: mmap.mmap) -> list[tuple[Any, bytes]]:
    """Each table of symbols with the text of its names."""
    start, size, count, _ = _SECTIONS.unpack_from(data)
    sections = [_SECTION.unpack_from(data, start + size * index) for index in range(count)]
    tables = []
    for kind, place, size_bytes, names in sections:
        if kind in _TABLES:
            table = np.frombuffer(data, _SYMBOL, size_bytes // _SYMBOL.itemsize, place).copy()
            text = sections[names][1]
            tables.append((table, data[text : text + sections[names][2]]))
    return tables


def _found(table: Any, text: bytes, names: Sequence[str]) -> dict[str, int]:
    found = {}
    for name in names:
        at = text.find(name.encode() + b"\0")
        while at >= 0:  # the end of a longer name may be it, too
            where = np.flatnonzero((table["name"] == at) & (table["section"] != 0))
            if where.size:
                found[name] = int(table["value"][where[0]])
                break
            at = text.find(name.encode() + b"\0", at + 1)
    return found

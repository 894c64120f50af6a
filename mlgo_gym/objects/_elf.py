"""ELF files as LIEF reads them, as far as code is measured by them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import lief


@dataclass(frozen=True, slots=True)
class FunctionSymbol:
    """A function that a symbol table names.

    Attributes:
        name: the symbol's.
        size_bytes: the size of its code; 0 where it is not defined here.
        section: the index of the section that it is in.
    """

    name: str
    size_bytes: int
    section: int


def read_elf(source: bytes | Path) -> lief.ELF.Binary | None:
    """Read an object or a linked file, or its bytes; ``None`` where it is no ELF file."""
    given = str(source) if isinstance(source, Path) else source
    elf = lief.ELF.parse(given, _settings()) if given else None
    return elf if isinstance(elf, lief.ELF.Binary) else None


def function_symbols(elf: lief.ELF.Binary) -> Iterator[FunctionSymbol]:
    """The functions of its symbol table, in its order; a stripped file has none."""
    for symbol in elf.symtab_symbols:
        if symbol.type == lief.ELF.Symbol.TYPE.FUNC:
            yield FunctionSymbol(str(symbol.name), int(symbol.size), int(symbol.shndx))


def _settings() -> Any:
    settings = lief.ELF.ParserConfig()
    for name in ("relocations", "dyn_symbols", "symbol_versions", "notes"):
        setattr(settings, f"parse_{name}", False)
    settings.parse_overlay = False
    return settings

"""The functions of an object, and how large their code is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import lief

_SHF_GROUP = 0x200
_STT_FUNC = lief.ELF.Symbol.TYPE.FUNC


@dataclass(frozen=True, slots=True)
class FunctionSize:
    """A function in an object.

    Attributes:
        size_bytes: the size of its code.
        is_comdat: a linker keeps one of the copies that several objects have.
    """

    size_bytes: int
    is_comdat: bool


def function_sizes(data: bytes) -> dict[str, FunctionSize]:
    """The functions of an ELF object by name, read by LIEF; empty for other formats.

    Args:
        data: the object's bytes.
    """
    binary = lief.ELF.parse(data, _settings()) if data else None
    if not isinstance(binary, lief.ELF.Binary):
        return {}
    grouped = [bool(int(section.flags) & _SHF_GROUP) for section in binary.sections]
    return {
        str(symbol.name): FunctionSize(symbol.size, grouped[symbol.shndx])
        for symbol in binary.symtab_symbols
        if symbol.type == _STT_FUNC and symbol.size and symbol.shndx < len(grouped)
    }


def _settings() -> Any:
    settings = lief.ELF.ParserConfig()
    for name in ("relocations", "dyn_symbols", "symbol_versions", "notes"):
        setattr(settings, f"parse_{name}", False)
    settings.parse_overlay = False
    return settings

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

    >>> FunctionSize(size_bytes=16, is_comdat=False).size_bytes
    16
    """

    size_bytes: int
    is_comdat: bool


def function_sizes(data: bytes) -> dict[str, FunctionSize]:
    """The functions of an ELF object by name, read by LIEF; empty for other formats.

    Args:
        data: the object's bytes.

    >>> from mlgo_gym import Compiler, Module
    >>> module = Module.from_ir("define i32 @f(i32 %x) { ret i32 %x }")
    >>> with Compiler() as compiler:
    ...     made = compiler.compile_module(module, keep_object=True)
    >>> list(function_sizes(made.object_bytes))
    ['f']
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

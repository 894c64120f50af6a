"""LLVM's own options (``-mllvm``) that do nothing but change the code, and what values they take.

``llvm_options.txt`` has a row for each: its name, and ``flag``, ``int``, ``number`` or the words
that it takes. ``scripts/llvm_options.py`` made it of what LLVM 22 lists, by trying each: one that
is not there may run a program, read or write a file, or show something, or its value is a text.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

PATTERNS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "flag": r"|true|false|TRUE|FALSE|True|False|0|1",
        "int": r"[+-]?(0[xX][0-9a-fA-F]+|[0-9]+)",
        "number": r"[+-]?[0-9]+(\.[0-9]*)?([eE][+-]?[0-9]+)?",
    }
)
"""Patterns of the values of each kind."""


_TABLE: Final = (Path(__file__).parent / "llvm_options.txt").read_text(encoding="ascii")
_KINDS: Final = dict(line.split(" ") for line in _TABLE.splitlines())


def refusal_of_llvm(option: str) -> str | None:
    """Why LLVM is not given an option of its own, or ``None`` where it is.

    >>> refusal_of_llvm("-inline-threshold=5")
    >>> refusal_of_llvm("-exec-on-ir-change=id")
    'it is not one of those known to run, read, write and show nothing'
    """
    name, _, value = option.lstrip("-").partition("=")
    if not option.startswith("-"):
        return "expected an option of LLVM"
    if name not in _KINDS:
        return "it is not one of those known to run, read, write and show nothing"
    kind = _KINDS[name]
    fits = re.fullmatch(PATTERNS[kind], value) if kind in PATTERNS else value in kind.split("|")
    return None if fits else "its value is not one that LLVM lists"

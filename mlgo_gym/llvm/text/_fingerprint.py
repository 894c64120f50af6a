"""Fingerprints of function bodies: equal where the code is, whatever module it stands in.

What names carry no meaning are left out or numbered anew: local values and labels in the order
of their appearance, the module's own constants by what they hold, types by name without the
number that LLVM adds to a name that is taken. Metadata, debug records, attribute groups and
comments are dropped. Opcodes, types, constants, flags and the names of callees and of other
globals stay.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import Final

from mlgo_gym.llvm.text._module_text import (
    NAME_PATTERN,
    Function,
    ModuleText,
    linkage_of,
    name_in_assembly,
)

MERGED_LINKAGES: Final = frozenset(
    {"available_externally", "linkonce", "linkonce_odr", "weak", "weak_odr"}
)
"""Linkages of bodies of which the linker keeps one: the headers' inline functions."""

# What clang calls the initialisers of a module's variables, those of headers among them
# (clang/lib/CodeGen/CGDeclCXX.cpp).
_INITIALISERS: Final = ("__cxx_global_var_init", "__cxx_global_array_dtor", "_GLOBAL__")

_TOKEN: Final = re.compile(
    rf"(?P<label>^{NAME_PATTERN}(?=:))"
    rf"|%(?P<value>{NAME_PATTERN})"
    rf"|(?P<global>@{NAME_PATTERN})"
    r'|(?P<string>"[^"]*")'
    # Attachments and metadata as a value, attribute groups, comments.
    rf"|(?P<dropped>,? !{NAME_PATTERN}(?: !\d+)?| #\d+| *;[^\n]*)",
    re.MULTILINE,
)
_GLOBAL: Final = re.compile(rf"@{NAME_PATTERN}")
_SUFFIX: Final = re.compile(r"\.\d+$")
_FINGERPRINT_BYTES: Final = 16


@dataclass(frozen=True, slots=True)
class Body:
    """One function body: own is what is neither of `MERGED_LINKAGES` nor an initialiser."""

    name: str
    fingerprint: str
    instructions: int
    is_own: bool


def bodies_of(module: ModuleText) -> list[Body]:
    """The bodies of a module's definitions, in its order."""
    normaliser = _Normaliser(module)
    return [
        Body(
            name_in_assembly(function.name),
            normaliser.fingerprint(function),
            function.instruction_count,
            _is_own(function),
        )
        for function in module.functions.values()
    ]


def _is_own(function: Function) -> bool:
    return function.linkage not in MERGED_LINKAGES and not name_in_assembly(
        function.name
    ).startswith(_INITIALISERS)


class _Normaliser:
    def __init__(self, module: ModuleText) -> None:
        self._types = {
            line[1:].partition(" = ")[0] for line in module.preamble if line.startswith("%")
        }
        self._own = {
            f"@{name}": _content(line)
            for name, line in module.variables.items()
            if linkage_of(line) in {"private", "internal"}
        }

    def fingerprint(self, function: Function) -> str:
        """The hash of a function's arguments and body."""
        numbers: dict[str, str] = {}

        def replace(match: re.Match[str]) -> str:
            return self._replacement(match, numbers)

        # Arguments first, so that they are numbered in their own order.
        lines = [function.header.partition(f"@{function.name}(")[2]]
        lines += (line for line in function.body if not line.startswith("    #dbg_"))
        return _digest(_TOKEN.sub(replace, "\n".join(lines)))

    def _replacement(self, match: re.Match[str], numbers: dict[str, str]) -> str:
        token = match[0]
        match match.lastgroup:
            case "global":
                return self._own.get(token, token)
            case "value" if token[1:] in self._types:
                return _SUFFIX.sub("", token)
            case "label" | "value":
                return numbers.setdefault(token.removeprefix("%"), f"%{len(numbers)}")
            case "dropped":
                return ""
        return token


def _content(line: str) -> str:
    """Return the hash of a module's own variable: of its type and its content."""
    name, _, definition = line.partition(" = ")
    definition = _GLOBAL.sub(lambda match: _SUFFIX.sub("", match[0]), definition)
    return f"{_SUFFIX.sub('', name)}:{_digest(definition)}"


def _digest(text: str) -> str:
    data = text.encode("utf-8", "surrogateescape")
    return hashlib.blake2b(data, digest_size=_FINGERPRINT_BYTES).hexdigest()

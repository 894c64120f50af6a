r"""One function of a module by itself: what ``llvm-extract`` does, on LLVM's own assembly.

llvmlite cannot drop a function's body, so the module's text is cut instead. It has one shape only,
since LLVM's printer has just made it: globals, aliases and declarations take one line each, and a
definition starts with ``define`` and ends with ``}`` in the first column. Every other definition
becomes a declaration that is as near as the definition was (``dso_local``), which is what the code
of its callers depends on.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

from mlgo_gym.errors import InternalError

__all__ = ["Assembly"]

_QUOTED: Final = r'"[^"]*"|[-\w$.]+'
_DEFINE: Final = re.compile(rf"define (?P<before>[^@]*)@(?P<name>{_QUOTED})(?P<after>\(.*) \{{$")
_LINKAGE: Final = re.compile(
    r"(private|internal|available_externally|linkonce_odr|linkonce|weak_odr|weak|external) "
)
_ONLY_DEFINED: Final = re.compile(
    rf" (comdat(\(\$({_QUOTED})\))?|personality ptr @({_QUOTED})|!\w+ !\d+)(?=$| )"
)
_ALIAS: Final = re.compile(
    rf"@(?P<name>{_QUOTED}) = .*\balias (?P<result>.*?) (?P<arguments>\(.*\)), ptr "
    rf"@(?P<to>{_QUOTED})$"
)
_BLOCK_ADDRESS: Final = re.compile(rf"blockaddress\(@({_QUOTED}), ")
_DROPPED: Final = (
    "@llvm.used = ",
    "@llvm.compiler.used = ",
    "@llvm.global_ctors = ",
    "@llvm.global_dtors = ",
    "module asm ",
)


class Assembly:
    """A module's text, taken apart once.

    Args:
        text: what LLVM prints of a module.
    """

    def __init__(self, text: str) -> None:
        self._shared: list[str] = []
        self._aliases: list[re.Match[str]] = []
        self._declarations: dict[str, str] = {}
        self._definitions: dict[str, str] = {}
        lines = iter(text.splitlines())
        for line in lines:
            if match := _DEFINE.match(line):
                self._define(match, lines)
            elif match := _ALIAS.match(line) if line.startswith("@") else None:
                self._aliases.append(match)
            elif not line.startswith(_DROPPED):
                self._shared.append(line)

    def alone(self, name: str) -> str:
        """The module's text with one definition, of external linkage, and all others declared.

        Aliases of the others are declared too; tables of addresses inside them are left out.

        Raises:
            InternalError: the module defines no function of this name.
        """
        quoted = name if name in self._definitions else f'"{name}"'
        if quoted not in self._definitions:
            raise InternalError(f"extraction: expected a definition of {name!r}, found none")
        return "\n".join(
            (
                *(line for line in self._shared if _may_stand(line, quoted)),
                *(_alias(match, quoted) for match in self._aliases),
                *(line for each, line in self._declarations.items() if each != quoted),
                self._definitions[quoted],
            )
        )

    def _define(self, match: re.Match[str], lines: Iterator[str]) -> None:
        before = _external(match["before"])
        name, after = match["name"], match["after"]
        body = [f"define {before}@{name}{after} {{"]
        for line in lines:
            body.append(line)
            if line == "}":
                break
        self._definitions[name] = "\n".join(body)
        self._declarations[name] = f"declare {before}@{name}{_ONLY_DEFINED.sub('', after)}"


def _external(before: str) -> str:
    """What stands before a function's name, with external linkage."""
    linkage = _LINKAGE.match(before)
    if linkage is None:
        return before
    near = "dso_local " if linkage[1] in {"private", "internal"} else ""
    return near + before[linkage.end() :]


def _alias(match: re.Match[str], name: str) -> str:
    """An alias of another function is another name for a declaration."""
    line = match.string
    if match["to"] == name:
        return line
    near = "dso_local " if " dso_local " in line or " internal " in line else ""
    return f"declare {near}{match['result']} @{match['name']}{match['arguments']}"


def _may_stand(line: str, name: str) -> bool:
    found: Sequence[str] = _BLOCK_ADDRESS.findall(line) if line.startswith("@") else ()
    return all(each == name for each in found)

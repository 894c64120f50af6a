"""One module for each function of a module, whose code is that of the whole module.

All other functions become declarations, with the attributes, calling convention and ``dso_local``
that decide how they are called. Variables become declarations too, but for constants that refer
to nothing, since code generation may put their bytes into the code, and for tables of the
function's own block addresses. What was local to the module becomes external and hidden, which is
addressed in the same way. The function itself keeps its linkage, and with it the way in which it
refers to itself; a local one whose address the module takes is listed in ``llvm.compiler.used``,
as it may need a landing pad for indirect branches.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Final

from mlgo_gym.llvm.text._module_text import (
    NAME_PATTERN,
    STRING,
    Function,
    ModuleText,
    linkage_of,
    references,
)
from mlgo_gym.llvm.text._signature import closing

_LOCAL: Final = frozenset({"private", "internal"})
_NODE: Final = re.compile(r"!(\d+)")
_VALUE: Final = re.compile(rf"ptr @({NAME_PATTERN})")
_BLOCK_OF: Final = re.compile(rf"blockaddress\(@({NAME_PATTERN}),")
# A name that is not the callee of a call.
_ADDRESS: Final = re.compile(rf"@({NAME_PATTERN})(?![-a-zA-Z$._0-9(])")
_USED: Final = '@llvm.compiler.used = appending global [1 x ptr] [ptr @{}], section "llvm.metadata"'
_ALIGNMENT: Final = re.compile(r", align \d+")
_HEAD: Final = re.compile(
    r"(?P<dso>dso_local )?(?P<visibility>(?:hidden|protected) )?(?P<storage>dll\w+ )?"
)
_VARIABLE: Final = re.compile(
    r"(?P<words>(?:thread_local(?:\(\w+\))? |(?:local_)?unnamed_addr |addrspace\(\d+\) )*)"
    r"(?:externally_initialized )?(?P<kind>global|constant|alias|ifunc) "
)
_COMDAT: Final = re.compile(rf",? comdat(?:\(\${NAME_PATTERN}\))?")
# What a definition may have after its attributes and a declaration may not.
_ONLY_DEFINED: Final = re.compile(r" (?:gc |prefix |prologue |personality |!|\{$)")
_DEFINITE: Final = frozenset(
    {"external", "private", "internal", "linkonce_odr", "weak_odr", "available_externally"}
)
"""Linkages whose definition is what is executed."""
_OWN: Final = re.compile(
    r"^(define|@(?:\"[^\"]*\"|[-\w$.]+) =) (?:(?:private|internal|linkonce_odr|linkonce|weak_odr"
    r"|weak|external|common|available_externally|dso_local|hidden|protected|local_unnamed_addr) )+"
)
_OPENING: Final = {"[": "]", "{": "}", "<": ">", "(": ")"}


def function_texts(
    module: ModuleText, names: Iterable[str], *, keeps_callees: bool = False
) -> Iterator[tuple[str, str]]:
    """The name and the assembly of a module for each of some functions.

    Args:
        module: which has them.
        names: of the functions, as they are written.
        keeps_callees: other functions that one needs are ``available_externally``: LLVM can inline
            them, and makes no code of them.
    """
    linker = _Linker(module, keeps_callees=keeps_callees)
    for name in names:
        yield name, linker.module_for(module.functions[name])


class _Linker:
    """Finds what a function refers to, and puts its module together."""

    def __init__(self, module: ModuleText, *, keeps_callees: bool) -> None:
        self._module = module
        self._keeps_callees = keeps_callees
        self._nodes = {
            number: _NODE.findall(line.partition(" = ")[2])
            for number, line in module.metadata.items()
        }

        everywhere = [*module.variables.values()]
        everywhere += (line for each in module.functions.values() for line in each.body)
        self._taken = set(_ADDRESS.findall("\n".join(everywhere)))

    def module_for(self, function: Function) -> str:
        lines = [function.header, *function.body, "}"]
        globals_ = self._globals(function, lines)
        roots = [*lines, *globals_.values(), *self._module.epilogue]
        metadata = self._metadata(roots, {function.name, *globals_})
        if function.linkage in _LOCAL and function.name in self._taken:
            globals_["llvm.compiler.used"] = _USED.format(function.name)
        parts = [
            *self._module.preamble,
            *self._comdats([function.header, *globals_.values()]),
            *globals_.values(),
            *lines,
            *self._module.epilogue,
            *metadata,
        ]
        return "\n".join(parts) + "\n"

    def _globals(self, function: Function, lines: list[str]) -> dict[str, str]:
        """The line of each global that is needed, by name."""
        found: dict[str, str] = {}
        pending = list(references("\n".join(lines)))
        while pending:
            name = pending.pop()
            if name in found or name == function.name:
                continue
            if (line := self._line(name, function)) is not None:
                found[name] = line
                pending += references(line)
        return dict(sorted(found.items()))

    def _line(self, name: str, function: Function) -> str | None:
        if (other := self._module.functions.get(name)) is not None:
            keeps = self._keeps_callees and other.linkage in _DEFINITE
            return _available(other) if keeps else declaration(other)
        if (line := self._module.declarations.get(name)) is not None:
            return _COMDAT.sub("", line)
        line = self._module.variables.get(name)
        if line is None or _is_kept(line, function):
            return line
        return variable_declaration(name, line)

    def _metadata(self, roots: list[str], known: set[str]) -> Iterator[str]:
        """The nodes that are referred to; what they say of other functions becomes null."""
        pending = _NODE.findall("\n".join(roots))
        found: set[str] = set()
        while pending:
            number = pending.pop()
            if number not in found and number in self._nodes:
                found.add(number)
                pending += self._nodes[number]

        def value(match: re.Match[str]) -> str:
            return match[0] if match[1] in known else "ptr null"

        for number in sorted(found, key=int):
            yield _VALUE.sub(value, self._module.metadata[number])

    def _comdats(self, lines: list[str]) -> Iterator[str]:
        text = "\n".join(lines)
        for line in self._module.comdats:
            name = line.partition(" = ")[0]
            if f"({name})" in text or f"@{name[1:]}" in text:
                yield line


def _available(function: Function) -> str:
    """The definition, for LLVM to look into."""
    header = exported(function.header).replace("define ", "define available_externally ", 1)
    return str(replace(function, header=header))


def exported(line: str) -> str:
    """The line of a definition, which is visible everywhere and alone of its name."""
    return _COMDAT.sub("", _OWN.sub(r"\1 ", line))


def variable_elsewhere(name: str, line: str) -> str:
    """The line of a variable that another module defines, of whose constants the bytes are known.

    Args:
        name: as it is written.
        line: its definition; its own declarations stay as they are.
    """
    if "blockaddress(" in line or " = external " in line or name.startswith("llvm."):
        return line
    definition = line.partition(" = ")[2]
    is_known = " constant " in definition and linkage_of(line) in _DEFINITE
    if is_known and not any(references(definition)):
        return exported(line).replace(" = ", " = available_externally ", 1)
    return re.sub(r"\b(?:dso_local|hidden|protected) ", "", variable_declaration(name, line))


def declaration(function: Function) -> str:
    """The ``declare`` line that stands for a definition."""
    linkage = function.linkage
    rest = function.header.removeprefix("define ").removeprefix(f"{linkage} ")
    end = closing(rest, rest.index(f"@{function.name}(") + len(function.name) + 1)
    tail = _COMDAT.sub("", rest[end:])
    if match := _ONLY_DEFINED.search(STRING.sub(_blank, tail)):
        tail = tail[: match.start()]
    return f"declare {_visibility(linkage)}{rest[:end]}{tail}"


def variable_declaration(name: str, line: str) -> str:
    """The declaration that stands for a variable, a constant, an alias or an ifunc."""
    linkage = linkage_of(line)
    rest = line.partition(" = ")[2].removeprefix(f"{linkage} ")
    head = _HEAD.match(rest)
    variable = _VARIABLE.match(rest, head.end() if head else 0)
    if head is None or variable is None:
        return line
    words = _visibility(linkage) + head[0]
    weak = "extern_weak" if linkage == "extern_weak" else "external"
    kind, start = variable["kind"], variable.end()
    type_text = rest[start : _type_end(rest, start)]
    if kind in {"alias", "ifunc"} and type_text.endswith(")"):
        result, _, arguments = type_text.partition(" (")
        return f"declare {words}{result} @{name}({arguments}"
    kind = "global" if kind == "alias" else kind
    align = _ALIGNMENT.findall(STRING.sub(_blank, rest))
    return f"@{name} = {weak} {words}{variable['words']}{kind} {type_text}{''.join(align[-1:])}"


def _is_kept(line: str, function: Function) -> bool:
    """Whether the definition of a variable stays."""
    definition = line.partition(" = ")[2]
    if blocks := set(_BLOCK_OF.findall(definition)):
        return blocks == {function.name}
    shape = STRING.sub(_blank, line)
    is_declaration = linkage_of(line) == "extern_weak" or " = external " in shape
    return is_declaration or (" constant " in shape and not any(references(definition)))


def _visibility(linkage: str) -> str:
    return "hidden " if linkage in _LOCAL else ""


def _type_end(text: str, start: int) -> int:
    """Return the end of the type that starts there."""
    end = start
    while end < len(text) and text[end] not in " ,":
        end = closing(text, end) if text[end] in _OPENING else _word_end(text, end)
        if text.startswith((" addrspace(", " ("), end):  # a pointer's, a function's
            end += 1
    return end


def _word_end(text: str, start: int) -> int:
    if text.startswith('%"', start):
        return text.index('"', start + 2) + 1
    match = re.compile(r"[^ ,\[{<(]+").match(text, start)
    return match.end() if match else start + 1


def _blank(match: re.Match[str]) -> str:
    return "_" * len(match[0])

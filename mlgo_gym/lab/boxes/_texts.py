"""Modules of a program whose functions are boxed, in LLVM's assembly.

Everything that was local to a module gets a name of the whole program's, so that a candidate, which
is one function alone, refers to the same functions, variables and constants as the program does.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import replace
from typing import Final

from mlgo_gym.llvm import (
    ATTRIBUTE_GROUP,
    NAME_PATTERN,
    Function,
    ModuleText,
    exported,
    function_texts,
    linkage_of,
    name_in_assembly,
    variable_elsewhere,
)

NOP_BYTES: Final = 5
"""The length of the instruction that each boxed function begins with, which does nothing."""
ENTRY: Final = ".entry"
"""Behind a function's name: where the program has it, in a candidate of it."""

LOCAL: Final = ".of"
"""Behind the name of what was local to a module, before the module's number."""

_LOCAL: Final = frozenset({"private", "internal"})
_TOKEN: Final = re.compile(rf'@({NAME_PATTERN})|"[^"]*"')
_LINKAGE: Final = re.compile(r"^(define|@(?:\"[^\"]*\"|[-\w$.]+) =) (?:private|internal) ")
_TAIL: Final = re.compile(
    r"(?= (?:section |comdat|align |gc |prefix |prologue |personality |!|\{$))"
)
_MARKS: Final = f' noinline "patchable-function-entry"="{NOP_BYTES}"'
_ALWAYS: Final = re.compile(r"\b(?:alwaysinline|naked)\b")


def opened(module: ModuleText, number: int) -> ModuleText:
    """The module with nothing that is local to it.

    Args:
        module: as LLVM printed it.
        number: what tells its names from those of other modules.
    """
    local = {
        *(name for name, line in module.variables.items() if linkage_of(line) in _LOCAL),
        *(name for name, each in module.functions.items() if each.linkage in _LOCAL),
    }
    names = {
        name: _with(name, f"{LOCAL}{number}") for name in local if not name.startswith("llvm.")
    }

    def renamed(text: str) -> str:
        return _TOKEN.sub(lambda m: f"@{names[m[1]]}" if m[1] in names else m[0], text)

    def line(name: str, text: str) -> str:
        return _LINKAGE.sub(r"\1 dso_local ", renamed(text)) if name in names else renamed(text)

    return replace(
        module,
        variables={
            names.get(name, name): line(name, each) for name, each in module.variables.items()
        },
        functions={
            names.get(name, name): Function(
                names.get(name, name),
                line(name, each.header),
                tuple(map(renamed, each.body)),
            )
            for name, each in module.functions.items()
        },
        declarations={name: renamed(each) for name, each in module.declarations.items()},
        metadata={name: renamed(each) for name, each in module.metadata.items()},
    )


def _with(name: str, suffix: str) -> str:
    """The name, as it is written, with something behind."""
    if name.endswith('"'):
        return f'{name[:-1]}{suffix}"'
    return f"boxed.{name}{suffix}" if name.isdigit() else f"{name}{suffix}"


def boxable(module: ModuleText) -> Iterator[tuple[str, str]]:
    """The functions of a module that can be called: as they are written, and their symbols."""
    for written, function in module.functions.items():
        if function.linkage != "available_externally" and not _is_inlined(module, function):
            yield written, name_in_assembly(written)


def _is_inlined(module: ModuleText, function: Function) -> bool:
    words = [function.header, *(module.attribute_groups[g] for g in _groups(module, function))]
    return any(_ALWAYS.search(each) for each in words)


def _groups(module: ModuleText, function: Function) -> Iterator[str]:
    return (g for g in ATTRIBUTE_GROUP.findall(function.header) if g in module.attribute_groups)


def marked(module: ModuleText, names: Collection[str]) -> ModuleText:
    """The module in which functions are not inlined, and can be redirected where they begin."""
    return replace(
        module,
        functions={
            name: replace(each, header=_marked(each.header)) if name in names else each
            for name, each in module.functions.items()
        },
    )


def _marked(header: str) -> str:
    places = [match.start() for match in ATTRIBUTE_GROUP.finditer(header)]
    if not places:
        place = _TAIL.search(header, header.rindex(")"))
        places = [place.start() if place else len(header)]
    return header[: places[-1]] + _MARKS + header[places[-1] :]


def candidate(module: ModuleText, name: str) -> str:
    """A module that defines one function, and all else as the program has it.

    Functions that it calls can be inlined; what is left of their calls goes to the program's.

    Args:
        module: an opened one.
        name: the function, as it is written.
    """
    function = module.functions[name]
    alone = replace(
        module,
        comdats=[],
        variables={each: variable_elsewhere(each, line) for each, line in module.variables.items()},
        functions=module.functions | {name: replace(function, header=exported(function.header))},
    )
    ((_, text),) = function_texts(alone, [name], keeps_callees=True)
    entry = _with(name, ENTRY)
    taken = re.compile(rf"(?<!blockaddress\()@{re.escape(name)}(?![-\w$.(])")
    if taken.search(text):
        text = f"{taken.sub(f'@{entry}', text)}\ndeclare void @{entry}()\n"
    return text

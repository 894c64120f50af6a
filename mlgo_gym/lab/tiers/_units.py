"""A linked program as units of one function each, which a JIT compiles one at a time.

Every call goes through a stub of the function's name, and its code is called ``NAME.impl``. Small
callees are inlined before, and what LLVM knows of a function's effects is taken off its
declarations, so that every tier makes the same calls in the same order: that is what makes a
replay of a recording exact.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

from mlgo_gym.llvm import (
    ATTRIBUTE_GROUP,
    NAME_PATTERN,
    Function,
    ModuleText,
    exported,
    function_texts,
    linkage_of,
    references,
    variable_elsewhere,
)

CODE: Final = ".impl"
SMALL: Final = 60
"""Callees of at most so many instructions are inlined before a program is split."""

_GONE: Final = re.compile(
    r"\b(?:minsize|optsize|optnone|noinline|alwaysinline|inlinehint|willreturn|nounwind"
    r"|mustprogress|nosync|nofree|norecurse|uwtable(?:\(\w+\))?|memory\([^)]*\)) ?"
)
_DEBUG: Final = re.compile(r",? !dbg !\d+")
_UNNAMED: Final = re.compile(r'"[^"]*"|@(\d+)\b')
_SCOPES: Final = re.compile(r"^.*@llvm\.experimental\.noalias\.scope.*\n", re.MULTILINE)
_BLOCK_OF: Final = re.compile(rf"blockaddress\(@({NAME_PATTERN}), ")
_CALLED: Final = re.compile(rf"\b(?:call|invoke)\b.* @({NAME_PATTERN})\(")
_REFUSED: Final = (
    (re.compile(r"^module asm ", re.MULTILINE), "assembly"),
    (re.compile(r"^@.* thread_local", re.MULTILINE), "thread-local variables"),
    (re.compile(r"^@.* = .*\b(?:alias|ifunc) ", re.MULTILINE), "aliases or resolvers"),
    (re.compile(r"^@llvm\.global_[cd]tors = ", re.MULTILINE), "code that runs before 'main'"),
    (re.compile(r"^  (?:%\S+ = )?(?:invoke|landingpad) ", re.MULTILINE), "exceptions"),
    (re.compile(r"@pthread_create\("), "threads"),
)


class UnfitError(ValueError):
    """A program that tiers cannot be recorded of; the text says what it has."""


@dataclass(frozen=True, slots=True)
class Unit:
    """One function of a program.

    Attributes:
        name: of its stub, as its calls have it.
        text: LLVM assembly that defines its code, and declares all else.
        instructions: of LLVM's, before any optimisation.
        refers: the names of the program's functions and variables in it.
    """

    name: str
    text: str
    instructions: int
    refers: tuple[str, ...]

    @property
    def code(self) -> str:
        """The name of its code, as it is written."""
        return _code(self.name)


@dataclass(frozen=True, slots=True)
class Units:
    """A program's functions, and the one module that defines its variables."""

    functions: tuple[Unit, ...]
    data: str
    variables: tuple[str, ...]
    data_refers: tuple[str, ...]


def with_small_inlined(text: str) -> str:
    """A linked module's assembly, where small functions are marked for LLVM's ``always-inline``."""
    for pattern, what in _REFUSED:
        if pattern.search(text):
            raise UnfitError(f"expected a program without {what}, found some")
    small = _inlined(ModuleText.read(text).functions)
    return "\n".join(_prepared(text, small)) + "\n"


def _inlined(functions: Mapping[str, Function]) -> frozenset[str]:
    """Small functions that do not call themselves, directly or through other small ones."""
    small = {
        name: {called for line in each.body for called in _CALLED.findall(line)}
        for name, each in functions.items()
        if each.instruction_count <= SMALL
        and name != "main"
        and "..." not in each.header
        and not any("@llvm.va_" in line or "indirectbr" in line for line in each.body)
    }

    def recurs(name: str) -> bool:
        seen, pending = set[str](), [name]
        while pending:
            for called in small[pending.pop()]:
                if called == name:
                    return True
                if called in small and called not in seen:
                    seen.add(called)
                    pending.append(called)
        return False

    return frozenset(name for name in small if not recurs(name))


def _prepared(text: str, small: frozenset[str]) -> Iterator[str]:
    groups = set(re.findall(r"^attributes (#\d+) = ", text, re.MULTILINE))
    for line in text.splitlines():
        if line.startswith("attributes "):
            yield _GONE.sub("", line).replace("{ ", "{ noredzone ", 1)
        elif line.startswith("define "):
            yield _DEBUG.sub("", _marked(line, small, groups))
        elif not line.lstrip().startswith("#dbg_"):
            yield _DEBUG.sub("", line) if line.startswith(("  ", "@")) else line


def _marked(header: str, small: frozenset[str], groups: set[str]) -> str:
    group = ATTRIBUTE_GROUP.search(header)
    if group and group[1] in groups and next(iter(references(header)), "") in small:
        return f"{header[: group.start()]} alwaysinline{header[group.start() :]}"
    return header


def split(text: str) -> Units:
    """The units of a linked module whose small functions have been inlined.

    Args:
        text: its assembly, as LLVM prints it.
    """
    text = _UNNAMED.sub(lambda match: f"@tiers.{match[1]}" if match[1] else match[0], text)
    text = _SCOPES.sub("", text)
    text = re.sub(r"\balwaysinline ", "", text)
    text = re.sub(r"@(atexit|exit)\b(?=\()", r"@tiers.\1", text)  # LLJIT has its own
    text = _BLOCK_OF.sub(lambda match: f"blockaddress(@{_code(match[1])}, ", text)
    module = ModuleText.read(text)
    own = {
        name: each
        for name, each in module.functions.items()
        if each.linkage != "available_externally"
    }
    variables = dict(_own_variables(module))
    known = {*own, *variables}
    plain = replace(
        module,
        comdats=[],
        variables=_elsewhere(module),
        functions={name: replace(each, header=exported(each.header)) for name, each in own.items()},
        metadata={},
        epilogue=[line for line in module.epilogue if line.startswith("attributes ")],
    )
    renamed = {_code(name): _renamed(each) for name, each in plain.functions.items()}
    whole = replace(plain, functions={**plain.functions, **renamed})
    texts = dict(function_texts(whole, renamed))
    found = [
        Unit(
            name,
            _without_metadata(texts[_code(name)]),
            each.instruction_count,
            tuple(sorted(known.intersection(references("\n".join(each.body))))),
        )
        for name, each in own.items()
    ]
    lines = list(variables.values())
    refers = set(references("\n".join(lines))) - set(variables)
    declared = [f"declare void @{name}()" for name in sorted(refers)]
    data = "\n".join([*module.preamble, *lines, *declared]) + "\n"
    return Units(tuple(found), data, tuple(variables), tuple(sorted(refers & set(own))))


def _code(name: str) -> str:
    return suffixed(name, CODE)


def suffixed(name: str, suffix: str) -> str:
    """A name as it is written, in quotes or not, with something behind it.

    >>> suffixed('"a b"', ".c"), suffixed("a", ".c")
    ('"a b.c"', 'a.c')
    """
    return f'{name[:-1]}{suffix}"' if name.endswith('"') else f"{name}{suffix}"


def _renamed(function: Function) -> Function:
    header = function.header.replace(f"@{function.name}(", f"@{_code(function.name)}(", 1)
    return replace(function, name=_code(function.name), header=header)


def _without_metadata(text: str) -> str:
    """Metadata says what a compiler may assume; what is left here has none that is needed."""
    return re.sub(r",? !(?:\w|\.)+ !\d+", "", text)


def _elsewhere(module: ModuleText) -> dict[str, str]:
    """Its variables as a unit sees them, which has no copy of its own.

    Each compilation of a function would have another copy, and a program may keep the address of
    one and look for it later.
    """
    return {name: variable_elsewhere(name, line) for name, line in module.variables.items()}


def _own_variables(module: ModuleText) -> Iterator[tuple[str, str]]:
    for name, line in module.variables.items():
        is_declared = linkage_of(line) in {"extern_weak", "appending"} or " = external " in line
        if not (is_declared or name.startswith("llvm.") or _BLOCK_OF.search(line)):
            yield name, exported(line)

"""Project files: the functions that objects of a build's targets share, for ``mlgo-cc``.

::

    mlgo-gym project 1
    target NAME          for each target, sorted by NAME
    plain                where its objects are to be clang's own
    exported             where its command line says what is exported
    object PATH          for each of its objects, below the build's folder, sorted
    HASH                 for each function that they share, sorted
    end

A function that only one object of a target has, and no other needs, can be local to it:
``native/project.c`` reads the file, ``native/local.c`` makes functions local in clang's process.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from mlgo_gym.base import OptionsError, read_bounded, write_atomically
from mlgo_gym.llvm import name_hash

FIRST_LINE: Final = "mlgo-gym project 1"
LAST_LINE: Final = "end"
PLAIN: Final = "plain"
MAX_BYTES: Final = 1 << 26

_MAIN: Final = "main"
_ALIASED: Final = re.compile(r"[CD]\d")
"""Constructors and destructors, of which one may be another name of the other in its object."""


@dataclass(frozen=True, slots=True)
class Symbols:
    """Names of functions in a module.

    Attributes:
        defined: functions with a definition that other modules can refer to.
        merged: defined functions of which a linker keeps one copy (``linkonce_odr``).
        needed: functions that are referred to and defined elsewhere.
    """

    defined: frozenset[str] = frozenset()
    merged: frozenset[str] = frozenset()
    needed: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class TargetFacts:
    """A target, its objects, and the hashes of the functions that they share."""

    name: str
    objects: tuple[str, ...]
    shared: frozenset[str]
    is_exported: bool = False


@dataclass(frozen=True, slots=True)
class ObjectFacts:
    """The hashes of functions of which an object keeps its copy visible to linkers.

    Where a link says what is exported, only hidden functions can be local.
    """

    shared: frozenset[str] = frozenset()
    is_exported: bool = False


def facts_of(
    targets: Mapping[str, tuple[str, ...]],
    symbols: Mapping[str, Symbols],
    *,
    objects: Mapping[str, str],
    exported: Iterable[str] = (),
    others: Iterable[str] = (),
    unlinked: bool = False,
) -> list[TargetFacts]:
    """Return the facts of each target: functions are shared that several objects have or need.

    Args:
        targets: the names of modules, by target.
        symbols: of each module.
        objects: the path of each module's object, below the build's folder.
        exported: targets whose link says what is exported.
        others: names of symbols in objects without bitcode.
        unlinked: a target is all that a build makes; not all of it is linked together.
    """
    needed = frozenset(others).union(*(each.needed for each in symbols.values()))
    defined = frozenset().union(*(each.defined for each in symbols.values()))
    aliases = {name for name in needed - defined if _ALIASED.search(name)}
    said = frozenset(exported)
    facts = []
    for target in sorted(targets):
        modules = [symbols[each] for each in targets[target] if each in symbols]
        copies = Counter(name for each in modules for name in each.defined)
        merged = frozenset().union(*(each.merged for each in modules))
        alone = _never_together(modules) if unlinked else frozenset()
        shared = {
            name for name in merged if (copies[name] > 1 and name not in alone) or name in needed
        } | aliases
        paths = sorted(objects[each] for each in targets[target] if each in symbols)
        hashes = frozenset(map(name_hash, shared))
        facts.append(TargetFacts(target, tuple(paths), hashes, target in said))
    return facts


def _never_together(modules: Iterable[Symbols]) -> frozenset[str]:
    """Functions whose copies no program has two of: their objects define all else twice, or main.

    Libtool compiles a source for the shared and for the static library. Programs each have a main.
    """
    ways: dict[str, set[frozenset[str] | int]] = defaultdict(set)
    libraries: set[str] = set()
    for number, each in enumerate(modules):
        own = each.defined - each.merged
        for name in each.defined:
            ways[name].add(own or number)
        if _MAIN not in own:
            libraries |= each.defined
    return frozenset(name for name, of in ways.items() if len(of) == 1 or name not in libraries)


def object_facts(facts: Iterable[TargetFacts]) -> dict[str, ObjectFacts]:
    """Return what holds for each object, which several targets may link."""
    found: dict[str, ObjectFacts] = {}
    for each in facts:
        for name in each.objects:
            known = found.get(name, ObjectFacts())
            found[name] = ObjectFacts(
                known.shared | each.shared, known.is_exported or each.is_exported
            )
    return found


def project_text(facts: Iterable[TargetFacts]) -> str:
    """Return the text of a project file.

    Raises:
        OptionsError: a name holds a line break, which the file cannot have.
    """
    lines = [FIRST_LINE, *(line for each in facts for line in _lines(each)), LAST_LINE]
    for line in lines:
        if "\n" in line:
            raise OptionsError(f"project: expected a name without line breaks, found {line!r}")
    return "\n".join(lines) + "\n"


def write_project(path: Path, facts: Iterable[TargetFacts]) -> None:
    """Write a project file.

    Raises:
        OptionsError: it cannot be written, or a name holds a line break.
    """
    text = project_text(facts).encode("utf-8", "surrogateescape")
    try:
        write_atomically(path, text)
    except OSError as error:
        raise OptionsError(f"cannot write {str(path)!r}: {error.strerror}") from error


def mark_plain(path: Path, targets: Iterable[str]) -> None:
    """Let the objects of some targets of a project file, and of no others, be clang's own.

    Raises:
        OptionsError: it cannot be read or written.
    """
    marked = {f"target {each}" for each in targets}
    try:
        text = read_bounded(path, MAX_BYTES).decode("utf-8", "surrogateescape")
        lines = [
            f"{line}\n{PLAIN}" if line in marked else line
            for line in text.split("\n")
            if line != PLAIN
        ]
        write_atomically(path, "\n".join(lines).encode("utf-8", "surrogateescape"))
    except OSError as error:
        raise OptionsError(f"cannot rewrite {str(path)!r}: {error.strerror}") from error


def _lines(facts: TargetFacts) -> Iterator[str]:
    yield f"target {facts.name}"
    if facts.is_exported:
        yield "exported"
    yield from (f"object {each}" for each in facts.objects)
    yield from sorted(facts.shared)

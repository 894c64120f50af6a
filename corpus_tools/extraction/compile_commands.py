"""Objects out of a ``compile_commands.json`` (https://clang.llvm.org/docs/JSONCompilationDatabase.html).

Both forms of an entry are read: ``arguments``, a list, and ``command``, which is split by the
shell's rules. The object is what ``-o`` names, else the entry's ``output``, else what the driver
would choose for ``-c``.
"""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import zip_longest
from os.path import normpath
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from corpus_tools.budget import Budget
from corpus_tools.errors import BuildListError
from corpus_tools.extraction.inputs import (
    OBJECT_SUFFIXES,
    Listed,
    ObjectInput,
    Outcome,
    Status,
    expand_response_files,
    listed_object,
    read_list,
    response_budget,
    split_words,
)
from corpus_tools.reading import parse_json, reason_of

# Actions of the driver that leave no object behind.
_NO_OBJECT = frozenset({"-E", "-S", "-M", "-MM", "-fsyntax-only", "--analyze", "-emit-ast"})
# Options without which a driver links what it compiles; -cc1 never does.
_COMPILES_ONLY = frozenset({"-c", "/c", "--compile", "-cc1"})
_ASSEMBLY = frozenset({".s", ".S", ".asm", ".sx"})
# What builds compile besides objects.
_OTHERS = {
    **dict.fromkeys((".pch", ".gch"), "a precompiled header"),
    ".pcm": "a precompiled module",
    ".res": "a compiled resource",
}


def read_json(path: Path) -> Any:
    """Read a build's JSON; bytes that are no UTF-8 come back as surrogates.

    Raises:
        BuildListError: the file cannot be read, or is no JSON.
    """
    try:
        return parse_json(read_list(path).removeprefix("\ufeff"))  # as Windows' tools begin
    except ValueError as error:
        raise BuildListError(path, f"expected JSON, found something else: {error}") from error


def list_compile_commands(path: Path, obj_base_dir: Path | None = None) -> list[Listed]:
    """List the objects of a compilation database, in its order.

    Args:
        path: the database.
        obj_base_dir: where names start of objects outside their command's directory.

    Raises:
        BuildListError: it is no compilation database.
    """
    entries, budget = enumerate(read_entries(path)), response_budget()
    listed = [_listed(entry, number, path, obj_base_dir, budget) for number, entry in entries]
    return listed if obj_base_dir is None else _told_apart(listed, obj_base_dir)


def read_entries(path: Path) -> list[Any]:
    """Read a compilation database; its entries may be anything.

    Raises:
        BuildListError: the file cannot be read, or is no list in JSON.
    """
    entries = read_json(path)
    if not isinstance(entries, list):
        raise BuildListError(path, f"expected a list of commands, found {type(entries).__name__}")
    return entries


def _told_apart(listed: list[Listed], obj_base_dir: Path) -> list[Listed]:
    """Name objects of one name by their paths below a folder that all lie in."""
    places: dict[str, set[Path]] = {}
    for each in listed:
        if isinstance(each, ObjectInput):
            places.setdefault(normpath(each.name), set()).add(Path(normpath(each.path)))
    shared = {name for name, paths in places.items() if len(paths) > 1}
    return [_renamed(each, shared, obj_base_dir) for each in listed]


def _renamed(each: Listed, shared: set[str], obj_base_dir: Path) -> Listed:
    if isinstance(each, Outcome) or normpath(each.name) not in shared:
        return each
    again = listed_object(str(each.path), obj_base_dir)
    return each if isinstance(again, Outcome) else replace(each, name=again.name)


def _listed(
    entry: Any, number: int, path: Path, obj_base_dir: Path | None, budget: Budget
) -> Listed:
    label = f"entry {number}"
    try:
        directory, source, arguments = read_entry(entry, path)
        label = source or label
        if not directory.is_dir():
            reason = f"the build's directory {directory} is gone"
            return Outcome(label, Status.FAILED, reason=reason)
        arguments = expand_response_files(arguments, directory, budget=budget)
        command = _Command(directory, source, arguments, entry.get("output"))
        return command.listed(label, obj_base_dir)
    except BuildListError as error:
        reason = error.problem if error.subject == path else str(error)
        return Outcome(label, Status.FAILED, reason=reason)
    except (OSError, ValueError) as error:  # a name that the system has no file for
        return Outcome(label, Status.FAILED, reason=f"cannot be read: {reason_of(error)}")


class _Command(NamedTuple):
    """A command of the database: where it ran, what it compiled, and what it may have made."""

    directory: Path
    source: str
    arguments: list[str]
    output: str | None

    def listed(self, label: str, obj_base_dir: Path | None) -> Listed:
        own = {argument for argument, _ in _pairs(self.arguments[1:])}
        if found := _NO_OBJECT.intersection(own):
            return Outcome(label, Status.SKIPPED, reason=f"makes no object ({min(found)})")
        given = _object_of(self.arguments) or self.output or self._default_object()
        if not given or given in {"-", "/dev/null"}:
            return Outcome(label, Status.SKIPPED, reason="names no object (no -o and no -c)")
        if self.source and PurePosixPath(self.source).suffix in _ASSEMBLY:
            return Outcome(given, Status.SKIPPED, reason="assembly, which has no bitcode")
        if other := _OTHERS.get(PurePosixPath(given).suffix):
            return Outcome(given, Status.SKIPPED, reason=f"makes no object but {other}")
        if PurePosixPath(given).suffix not in OBJECT_SUFFIXES and not own & _COMPILES_ONLY:
            return Outcome(given, Status.SKIPPED, reason="compiles and links at once (no -c)")
        return listed_object(
            given,
            self.directory,
            obj_base_dir,
            source=self.source or None,
            driver_command=tuple(self.arguments),
        )

    def _default_object(self) -> str | None:
        """The driver's choice where no ``-o`` is given."""
        if "-c" not in self.arguments or not self.source:
            return None
        return f"{PurePosixPath(self.source).stem}.o"


def read_entry(
    entry: Any, path: Path, split: Callable[[str], list[str]] = split_words
) -> tuple[Path, str, list[str]]:
    """Directory, source (empty if it is not told) and arguments of an entry.

    Args:
        entry: of a compilation database.
        path: the database.
        split: cuts a ``command`` into arguments.

    Raises:
        BuildListError: a key is missing or no string.
    """
    if not isinstance(entry, dict):
        raise BuildListError(path, f"expected an object, found {type(entry).__name__}")
    for key in ("directory", "file", "command", "output"):
        if not isinstance(entry.get(key, ""), str):
            found = reprlib.repr(entry[key])
            raise BuildListError(path, f"key {key!r}: expected a string, found {found}")
    if "directory" not in entry:
        raise BuildListError(path, "key 'directory': expected a string, found none")
    directory = path.parent.absolute() / entry["directory"]
    return directory, entry.get("file", ""), _arguments(entry, path, split)


def _arguments(entry: dict[str, Any], path: Path, split: Callable[[str], list[str]]) -> list[str]:
    if "arguments" in entry:
        arguments = entry["arguments"]
        if not isinstance(arguments, list) or not all(isinstance(each, str) for each in arguments):
            raise BuildListError(path, "key 'arguments': expected a list of strings")
        return arguments
    if "command" not in entry:
        raise BuildListError(path, "expected 'arguments' or 'command', found neither")
    try:
        return split(entry["command"])
    except ValueError as error:
        raise BuildListError(path, f"key 'command': expected shell words: {error}") from error


def _object_of(arguments: list[str]) -> str | None:
    """The file that ``-o`` names; the last one counts, as for clang."""
    found = None
    is_cl = PurePosixPath(arguments[0]).name.startswith("clang-cl") if arguments else False
    for argument, value in _pairs(arguments[1:]):
        if argument in {"-o", "--output"}:
            found = value or found
        elif argument.startswith("-o") and not argument.startswith(("-objc", "-object")):
            found = argument.removeprefix("-o")
        elif argument.startswith("--output="):
            found = argument.removeprefix("--output=")
        elif is_cl and argument.startswith(("/Fo", "-Fo")):
            found = argument[3:].removeprefix(":") or value
    return found


def _pairs(arguments: list[str]) -> Iterator[tuple[str, str | None]]:
    """Each argument with the one behind it; those that belong to -Xclang and -mllvm left out."""
    is_value = False
    for argument, value in zip_longest(arguments, arguments[1:]):
        if not is_value:
            yield argument, value
        is_value = not is_value and argument in {"-Xclang", "-mllvm", "-Xlinker", "-o"}

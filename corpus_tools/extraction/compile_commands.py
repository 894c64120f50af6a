"""Objects out of a ``compile_commands.json`` (https://clang.llvm.org/docs/JSONCompilationDatabase.html).

Both forms of an entry are read: ``arguments``, a list, and ``command``, which is split by the
shell's rules. The object is what ``-o`` names, else the entry's ``output``, else what the driver
would choose for ``-c``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import zip_longest
from os.path import normpath
from pathlib import Path, PurePosixPath
from typing import Any, Final

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
from corpus_tools.reading import Shape, parse_json, reason_of, shaped

_ENTRY: Final[Shape] = {
    "directory": str,
    **dict.fromkeys(("file?", "command?", "output?"), str),
    "arguments?": [str],
}
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


def read_json(path: Path, shape: Shape) -> Any:
    """Read a build's JSON of a shape; bytes that are no UTF-8 come back as surrogates.

    Raises:
        BuildListError: the file cannot be read, or is something else.
    """
    try:
        return shaped(parse_json(read_list(path).removeprefix("\ufeff")), shape)  # as on Windows
    except ValueError as error:
        raise BuildListError(path, f"JSON: {error}") from error


def list_compile_commands(path: Path, obj_base_dir: Path | None = None) -> list[Listed]:
    """List the objects of a compilation database, in its order.

    Args:
        path: the database.
        obj_base_dir: where names start of objects outside their command's directory.

    Raises:
        BuildListError: it is no compilation database.
    """
    entries, budget = enumerate(read_json(path, list)), response_budget()
    listed = [_listed(entry, number, path, obj_base_dir, budget) for number, entry in entries]
    return listed if obj_base_dir is None else _told_apart(listed, obj_base_dir)


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
        return _object(label, entry, directory, arguments, obj_base_dir)
    except BuildListError as error:
        reason = error.problem if error.subject == path else str(error)
        return Outcome(label, Status.FAILED, reason=reason)
    except (OSError, ValueError) as error:  # a name that the system has no file for
        return Outcome(label, Status.FAILED, reason=f"cannot be read: {reason_of(error)}")


def _object(
    label: str,
    entry: dict[str, Any],
    directory: Path,
    arguments: list[str],
    obj_base_dir: Path | None,
) -> Listed:
    """The object that a command may have made."""
    own = {argument for argument, _ in _pairs(arguments[1:])}
    if found := _NO_OBJECT.intersection(own):
        return Outcome(label, Status.SKIPPED, reason=f"makes no object ({min(found)})")
    source = PurePosixPath(entry.get("file", ""))
    given = _object_of(arguments) or entry.get("output")
    if not given and "-c" in arguments and source.name:  # the driver's choice
        given = f"{source.stem}.o"
    if not given or given in {"-", "/dev/null"}:
        return Outcome(label, Status.SKIPPED, reason="names no object (no -o and no -c)")
    suffix = PurePosixPath(given).suffix
    if source.suffix in _ASSEMBLY:
        return Outcome(given, Status.SKIPPED, reason="assembly, which has no bitcode")
    if other := _OTHERS.get(suffix):
        return Outcome(given, Status.SKIPPED, reason=f"makes no object but {other}")
    if suffix not in OBJECT_SUFFIXES and not own & _COMPILES_ONLY:
        return Outcome(given, Status.SKIPPED, reason="compiles and links at once (no -c)")
    return listed_object(
        given,
        directory,
        obj_base_dir,
        source=entry.get("file") or None,
        driver_command=tuple(arguments),
    )


def read_entry(
    entry: Any, path: Path, split: Callable[[str], list[str]] = split_words
) -> tuple[Path, str, list[str]]:
    """Directory, source (empty if it is not told) and arguments of an entry.

    Args:
        entry: of a compilation database.
        path: the database.
        split: cuts a ``command`` into arguments.

    Raises:
        BuildListError: a key is missing or of another type, or the command has an open quote.
    """
    try:
        shaped(entry, _ENTRY)
        arguments = entry.get("arguments")
        if arguments is None:
            arguments = split(shaped(entry, {"command": str})["command"])
    except ValueError as error:
        raise BuildListError(path, str(error)) from error
    return path.parent.absolute() / entry["directory"], entry.get("file", ""), arguments


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

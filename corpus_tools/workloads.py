"""Workloads: programs made of a corpus's objects, and what they must do when they run.

``CORPUS/workloads/`` has a ``workload.toml``, the sources of what drives the package's code, and
what the programs read. `FIELDS` lists the keys of a workload's table, ``[workload.NAME]``; those
that stand above all tables are what all of them have in common. Those of packages that have a
recipe ship in ``corpus_tools/workloads/``: where the corpus is built there are the package's
headers, so their sources are compiled there and stay beside the corpus as bitcode.

>>> [each.name for each in load_workloads(shipped_workloads("lupa"))]
['chunks', 'objects', 'text']
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from importlib import resources
from pathlib import Path
from typing import Any, Final

from corpus_tools.clang import Clang, SourceFile
from corpus_tools.errors import WorkloadError
from corpus_tools.manifest import name_problem
from corpus_tools.reading import read_regular, reason_of
from corpus_tools.recipes import Recipe, flags_for
from corpus_tools.staging import WORKLOADS, digests_of
from corpus_tools.tables import (
    TEXT,
    Field,
    check_table,
    is_count,
    is_names,
    is_strings,
    matches,
    read_table,
)

DESCRIPTION: Final = "workload.toml"
SOURCE_LEVEL: Final = "O2"
"""The options of sources, so that a policy's code is all that differs."""

LARGEST_BYTES: Final = 1 << 20
_BITCODE: Final = ".bc"
_NAMES: Final = "a list of names in its folder, without '..'"
MOST_GLOBS: Final = 1024
_WILDCARDS: Final = frozenset("*?[")
_PATTERNS: Final = f"a list of patterns of modules' names, at most {MOST_GLOBS} with * or ? or ["
_NAME: Final = Field("lower-case letters, digits, '-'", matches(r"[a-z0-9][a-z0-9-]*"))
_LIBRARY: Final = matches(r"[A-Za-z0-9_+.-]+")
_FLAG: Final = matches(r"-[DU][^\0]+|-std=[\w+]+|-I[^\0]+")
_MOST_S, _MOST_MIB, _MOST_CHARACTERS = 3600, 1 << 16, 1 << 16
MOST_INPUT_BYTES: Final = 1 << 28
_SUFFIXES: Final = (".c", ".cc", ".cpp", ".cxx", ".bc")


def _is_glob(pattern: str) -> bool:
    return not _WILDCARDS.isdisjoint(pattern)


def _are_patterns(value: object) -> bool:
    return is_names(value) and sum(map(_is_glob, value)) <= MOST_GLOBS  # type: ignore[call-overload]


def _fitting(pattern: str, names: Mapping[str, object]) -> set[str]:
    """Return the names that a pattern fits."""
    if _is_glob(pattern):
        return {name for name in names if fnmatchcase(name, pattern)}
    return {pattern} & names.keys()


def _are_sources(names: list[str]) -> bool:
    ends = [Path(name).name for name in names]
    return len(set(ends)) == len(ends) and all(name.endswith(_SUFFIXES) for name in ends)


def _are_arguments(words: list[str]) -> bool:
    text = "".join(words)
    return "\0" not in text and len(text.encode()) <= _MOST_CHARACTERS


def _is_flag(value: str) -> bool:
    """Whether clang is given it: what runs nothing, and reads nothing elsewhere."""
    return _FLAG(value) and not (value.startswith("-I") and name_problem(value[2:]))


FIELDS: Final[Mapping[str, Field]] = {
    "about": TEXT,
    "modules": Field(
        f"{_PATTERNS}, not empty",
        lambda value: _are_patterns(value) and bool(value),
    ),
    "exclude": Field(_PATTERNS, _are_patterns),
    "sources": Field(
        f"{_NAMES}, of C, C++ or bitcode, each called otherwise",
        lambda value: is_names(value) and _are_sources(value),  # type: ignore[arg-type]
    ),
    "flags": Field(
        "a list of -DNAME[=VALUE], -UNAME, -std=NAME and -IFOLDER, without '..'",
        lambda value: is_strings(value) and all(map(_is_flag, value)),  # type: ignore[call-overload]
    ),
    "libraries": Field(
        "a list of libraries' names, as -l takes them",
        lambda value: is_strings(value) and all(map(_LIBRARY, value)),  # type: ignore[call-overload]
    ),
    "arguments": Field(
        f"a list of strings without NUL, of at most {_MOST_CHARACTERS} characters in all",
        lambda value: is_strings(value) and _are_arguments(value),  # type: ignore[arg-type]
    ),
    "files": Field(_NAMES, is_names),
    "stdin": Field("a name in its folder", lambda value: is_names([value])),
    "stdout_sha256": Field("64 lower-case hexadecimal digits", matches(r"[0-9a-f]{64}")),
    "exit_status": Field(
        "a whole number from 0 to 255",
        lambda value: type(value) is int and 0 <= value < 256,
    ),
    "timeout_s": Field(
        f"a whole number of seconds from 1 to {_MOST_S}",
        lambda value: is_count(value) and value <= _MOST_S,  # type: ignore[operator]
    ),
    "memory_mib": Field(
        f"a whole number of MiB from 1 to {_MOST_MIB}",
        lambda value: is_count(value) and value <= _MOST_MIB,  # type: ignore[operator]
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """A program, and one run of it.

    Attributes:
        name: what it is called beside the others of its corpus.
        folder: where its sources and files are.
        about: what it does, in a line.
        modules: patterns (`fnmatch`) of the corpus's modules that are linked.
        exclude: patterns of those that are not.
        sources: C, C++ and bitcode that is linked with them.
        flags: for clang, of the sources.
        libraries: as ``-l`` takes them; all is linked statically.
        arguments: what stands behind the program's name.
        files: what is there when it runs, and nothing else is.
        stdin: the file that it reads as standard input; it is empty otherwise.
        stdout_sha256: of what it must write to standard output, hexadecimal.
        exit_status: with which it must end.
        timeout_s: how long it may take, in seconds, where nothing counts what it does.
        memory_mib: how much memory it may take, in MiB.
    """

    name: str
    folder: Path
    about: str
    stdout_sha256: str
    modules: tuple[str, ...] = ("*",)
    exclude: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()
    libraries: tuple[str, ...] = ()
    arguments: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    stdin: str | None = None
    exit_status: int = 0
    timeout_s: int = 10
    memory_mib: int = 1024

    def error(self, problem: str) -> WorkloadError:
        """The error to raise: its name, and what was expected and found."""
        return WorkloadError(f"workload {self.name!r}: {problem}")

    def modules_of(self, names: Iterable[str]) -> tuple[str, ...]:
        """Return the modules of a corpus that are linked, in its order.

        Raises:
            WorkloadError: a pattern fits none.
        """
        known = dict.fromkeys(names)
        linked = set[str]()
        for pattern in self.modules:
            if not (fitting := _fitting(pattern, known)):
                raise self.error(
                    f"expected objects that fit {pattern!r}, found none among the {len(known)} "
                    "modules of the corpus"
                )
            linked |= fitting
        linked.difference_update(*(_fitting(pattern, known) for pattern in self.exclude))
        return tuple(name for name in known if name in linked)

    def source_paths(self) -> tuple[Path, ...]:
        """The sources, in place of each the bitcode that was made of it, where there is some."""
        paths = (self.folder / each for each in self.sources)
        bitcode = ((path, path.with_name(f"{path.name}{_BITCODE}")) for path in paths)
        return tuple(made if made.is_file() else path for path, made in bitcode)


def load_workloads(folder: Path) -> tuple[Workload, ...]:
    """The workloads of a folder, by name; none where there is no ``workload.toml``.

    Raises:
        WorkloadError: it is not as it must be, or names a file that is not there.
    """
    path = folder / DESCRIPTION
    if not os.path.lexists(path):
        return ()
    where = str(path)
    try:
        table = read_table(read_regular(path, LARGEST_BYTES), where, WorkloadError)
    except OSError as error:
        raise WorkloadError(f"{where}: cannot be read: {reason_of(error)}") from error
    own = table.pop("workload", None)
    if not isinstance(own, dict) or not own:
        raise WorkloadError(f"{where}: expected a table [workload.NAME], found none")
    return tuple(_workload(name, table, own[name], folder, where) for name in sorted(own))


def shipped_workloads(recipe: str) -> Path:
    """The folder with what ships of a recipe's package, which need not be there."""
    # The folder holds data and is no package: this module has its name.
    return Path(str(resources.files("corpus_tools") / WORKLOADS / recipe))


def workloads_digest(recipe: str) -> dict[str, str]:
    """The record in ``corpus_info.json`` of the workloads that ship with a recipe, if any do."""
    if not (files := digests_of(shipped_workloads(recipe))):
        return {}
    return {"workloads_digest": hashlib.sha256(json.dumps(files).encode()).hexdigest()}


def build_workloads(recipe: Recipe, root: Path, clang: Clang, flags: tuple[str, ...]) -> Path:
    """Compile the sources of what ships of a recipe's package, where its headers are.

    Args:
        recipe: the recipe.
        root: the unpacked package.
        clang: the compiler.
        flags: of the package; its top folder is searched for headers, too.

    Returns:
        The folder for the corpus, inside of `root`; it is not there where nothing ships.

    Raises:
        CompileError: clang failed.
    """
    made = root / f"mlgo_gym.{WORKLOADS}"
    if shipped_workloads(recipe.name).is_dir():
        shutil.copytree(shipped_workloads(recipe.name), made)
        for workload in load_workloads(made):
            compile_workload(workload, None, clang, root, (*flags, "-I."))
    return made


def compile_workload(
    workload: Workload, output: Path | None, clang: Clang, root: Path, flags: tuple[str, ...] = ()
) -> list[Path]:
    """The bitcode of its sources, which is made where it is not there.

    Args:
        workload: the workload, whose folder is ``root`` or in it.
        output: the folder to put bitcode into; ``None`` puts it beside each source.
        clang: the compiler.
        root: where relative paths in flags start.
        flags: beside the workload's own.

    Raises:
        CompileError: clang failed.
    """
    found = []
    for path in workload.source_paths():
        made = path
        if path.suffix != _BITCODE:
            made = (output or path.parent) / f"{path.name}{_BITCODE}"
            source = path.relative_to(root).as_posix()
            own = flags_for(source, (*flags, *workload.flags))
            SourceFile(clang, source, root, own, SOURCE_LEVEL).compile(made)
        found.append(made)
    return found


def _workload(name: str, common: dict[str, Any], own: Any, folder: Path, where: str) -> Workload:
    place = f"{where}: workload {name!r}"
    if not _NAME.accepts(name):
        raise WorkloadError(f"{where}: workload: expected {_NAME.expected}, found {name!r}")
    if not isinstance(own, dict):
        raise WorkloadError(f"{place}: expected a table, found {own!r}")
    table = common | own
    check_table(table, FIELDS, Workload, place, WorkloadError)
    frozen: dict[str, Any] = {
        key: tuple(value) if isinstance(value, list) else value for key, value in table.items()
    }
    workload = Workload(name=name, folder=folder, **frozen)
    inputs = (*workload.files, *filter(None, [workload.stdin]))
    try:
        paths = (*workload.source_paths(), *map(folder.joinpath, inputs))
        problems = [problem for path in paths if (problem := _problem_of(path, folder))]
    except OSError as error:
        problems = [f"cannot look at its files: {reason_of(error)}"]
    for problem in problems:
        raise WorkloadError(f"{place}: {problem}")
    return workload


def _problem_of(path: Path, folder: Path) -> str | None:
    """The fault of a file that a workload names."""
    if not path.is_file():
        return f"expected {path.name!r} beside {DESCRIPTION}, found no such file"
    if not path.resolve().is_relative_to(folder.resolve()):
        return f"expected {path.name!r} in its folder, found a link to {path.resolve()}"
    if (size := path.stat().st_size) > MOST_INPUT_BYTES:
        return f"{path.name!r}: expected at most {MOST_INPUT_BYTES} bytes, found {size}"
    return None

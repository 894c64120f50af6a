"""A project to tune: the modules of its build, and what it links of them.

::

    corpus/         the modules, kept so that a tune goes on with them
    sources.json    what they were compiled from, where clang compiled them for this
    project.json    the build's folder, what it links, and why other modules are not there
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from corpus_tools.errors import CorpusToolsError
from corpus_tools.extraction.inputs import Status
from corpus_tools.extraction.links import Link, list_links
from corpus_tools.extraction.recompile import BuildCommand, list_commands
from corpus_tools.extraction.run import extract_corpus
from corpus_tools.extraction.static_archive import list_folder
from corpus_tools.manifest import MANIFEST_NAME
from corpus_tools.reading import Shape, reason_of, shaped
from mlgo_gym.base import (
    OptionsError,
    check_kind,
    read_json,
    staged_folder,
    write_json,
)
from mlgo_gym.cc._build_commands import CMAKE_CACHE
from mlgo_gym.cc._module_sources import SOURCES_FILE, Sources
from mlgo_gym.cc._traces import Build, build_of, driver_programs, open_build
from mlgo_gym.corpus import Corpus

_DATABASE: Final = "compile_commands.json"
_CORPUS: Final = "corpus"
_FILE: Final = "project.json"
RECORDS: Final = (_FILE, SOURCES_FILE)
"""The files of which a folder with the modules of a build has one."""
_LTO: Final = re.compile(r"-fno-lto|-flto(=.*)?")
_MAX_BYTES: Final = 1 << 26
_SHOWN: Final = 3
_SHAPE: Final[Shape] = {
    "build": str,
    "targets": {"*": [str]},
    "failures": [str],
    "exported?": [str],
    "objects?": {"*": str},
    "others?": [str],
}


@dataclass(frozen=True, slots=True)
class Project:
    """The modules of a build.

    Attributes:
        corpus: its modules, as the inliner sees them.
        targets: what it links: the modules' names, by the target's.
        exported: of those targets, whose command lines say what is exported.
        objects: the modules' objects, below the build's folder; those of targets are here.
        others: objects of targets that are no modules, as absolute paths.
        failures: why modules or targets are not there.
    """

    corpus: Corpus
    targets: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    exported: tuple[str, ...] = ()
    objects: Mapping[str, str] = field(default_factory=dict)
    others: tuple[str, ...] = ()
    failures: tuple[str, ...] = ()


def open_project(
    build: Path, folder: Path, jobs: int, timeout_s: float, *, renews: bool = False
) -> Project:
    """The project of a build, whose modules are kept in a folder; what is there is not made again.

    Args:
        build: the build's folder, or its ``compile_commands.json``. Without one, its objects are
            read, whose bitcode is in them.
        folder: where the modules are kept.
        jobs: how many clangs run at once.
        timeout_s: how long one may take, in seconds.
        renews: whether modules are made again whose command, source or headers have changed.

    Raises:
        OptionsError: the build has neither, or the folder holds another one's modules or
            something else.
        EnvironmentSetupError: ``mlgo-cc`` is not installed.
    """
    root = Path(os.path.normpath((build if build.is_dir() else build.parent).absolute()))
    path, corpus = folder / _FILE, folder / _CORPUS
    asked = str(build.absolute())
    try:
        known = _known(path, asked)
        if known is None or renews:
            folder.mkdir(parents=True, exist_ok=True)
            check_kind(folder, *RECORDS)
            places, failures = _taken(build, folder, jobs, timeout_s)
            links = list_links(root)
            targets, left_out = _targets(links, places)
            linked = {each for link in links for each in link.objects}
            known = {
                "build": asked,
                "targets": targets,
                "exported": [link.name for link in links if link.is_exported],
                "objects": {
                    name: os.path.relpath(path, root)
                    for path, name in places.items()
                    if path in linked or not links
                },
                "others": sorted(map(str, linked - set(places))),
                "failures": [*failures, *left_out],
            }
            write_json(path, known)
    except OSError as error:
        raise OptionsError(f"cannot write {str(error.filename)!r}: {error.strerror}") from error
    except CorpusToolsError as error:
        raise OptionsError(f"build: {error}") from error
    kept = Corpus.load(corpus)
    targets = {name: tuple(modules) for name, modules in known["targets"].items()}
    if left := {each for modules in targets.values() for each in modules} - set(kept):
        raise OptionsError(f"{str(path)!r}: expected modules of {_CORPUS}, found {min(left)!r}")
    return Project(
        kept,
        targets,
        tuple(known.get("exported", ())),
        known.get("objects") or {name: name for name in kept},
        tuple(known.get("others", ())),
        tuple(known["failures"]),
    )


def project_of_corpus(folder: Path) -> Project:
    """The project of a corpus: one target of all its modules, whose names are their objects'."""
    corpus = Corpus.load(folder)
    objects = {name: name for name in corpus}
    return Project(corpus, {folder.absolute().name: corpus.names}, objects=objects)


def database_of(build: Path) -> Path:
    """The ``compile_commands.json`` of a build.

    Raises:
        OptionsError: it has none.
    """
    database = _find_database(build)
    if database is None:
        command = _cmake(build) or "bear -- make clean all"
        raise OptionsError(
            f"build {str(build)!r}: expected {_DATABASE} there, found none; {command!r} brings it"
        )
    return database


def known_build(build: Path, corpus: Corpus) -> Build:
    """The commands of a build, whose modules are kept.

    Raises:
        OptionsError: it has no ``compile_commands.json``.
    """
    return build_of(database_of(build), corpus)


def count_lto(build: Path) -> int:
    """How many objects of a build have no code before they are linked: those of ``-flto``.

    Commands tell it; without a ``compile_commands.json`` there are none.

    Raises:
        OptionsError: it is no ``compile_commands.json``.
    """
    database = _find_database(build)
    if database is None:
        return 0
    try:
        listed = list_commands(database)
    except CorpusToolsError as error:
        raise OptionsError(f"build: {error}") from error
    return sum(isinstance(each, BuildCommand) and _is_lto(each.as_built) for each in listed)


def _is_lto(arguments: Iterable[str]) -> bool:
    said = [each for each in arguments if _LTO.fullmatch(each)]
    return bool(said) and said[-1] != "-fno-lto"


def _find_database(build: Path) -> Path | None:
    path = build / _DATABASE if build.is_dir() else build
    return path if path.exists() or not build.is_dir() else None


def _known(path: Path, asked: str) -> dict[str, Any] | None:
    """Return the record of an earlier run, if there is one, which must be of the same build."""
    try:
        known: dict[str, Any] = shaped(read_json(path, _MAX_BYTES), _SHAPE)
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise OptionsError(
            f"{str(path)!r}: expected the record of an earlier run: {reason_of(error)}"
        ) from error
    if known["build"] != asked:
        raise OptionsError(
            f"tune {str(path.parent)!r}: expected modules of {asked!r}, "
            f"found those of {known['build']!r}"
        )
    return known


def _taken(
    build: Path, folder: Path, jobs: int, timeout_s: float
) -> tuple[dict[Path, str], list[str]]:
    """Put the modules of a build into a corpus: their names by their objects, and what failed."""
    corpus = folder / _CORPUS
    if database := _find_database(build):
        sources = Sources(folder, corpus, driver_programs())
        with open_build(database, jobs, timeout_s, sources) as opened:
            sources.forget()
            with staged_folder(corpus, MANIFEST_NAME) as staged:
                shutil.copytree(opened.corpus.folder, staged, dirs_exist_ok=True)
            sources.write()
            places = {each.directory / each.name: each.name for each in opened.commands.values()}
            places |= {database.parent / name: name for name in opened.corpus}
            return _normal(places, opened.corpus), list(opened.failures)
    with staged_folder(corpus, MANIFEST_NAME) as staged:
        report = extract_corpus(list_folder(build), staged, num_workers=jobs)
        if not (staged / MANIFEST_NAME).exists():
            raise OptionsError(_no_bitcode(build))
    failed = [each for each in report.outcomes if each.status is Status.FAILED]
    places = {build / each.input: each.modules[0] for each in report.outcomes if each.modules}
    return _normal(places, report.modules), [f"{each.input}: {each.reason}" for each in failed]


def _normal(places: Mapping[Path, str], known: Iterable[str]) -> dict[Path, str]:
    """The modules that are there by the absolute paths of their objects."""
    names = set(known)
    return {
        Path(os.path.normpath(path.absolute())): name
        for path, name in places.items()
        if name in names
    }


def _no_bitcode(build: Path) -> str:
    flags = "-Xclang -fembed-bitcode=all"
    command = _cmake(build) or f"make clean all CC='clang {flags}' CXX='clang++ {flags}'"
    return (
        f"build {str(build)!r}: expected {_DATABASE} or objects with bitcode, found neither; "
        f'"{command}" brings it'
    )


def _cmake(build: Path) -> str | None:
    """The command by which CMake lists its commands, where it has made the folder."""
    if not (build / CMAKE_CACHE).exists():
        return None
    return f"cmake -DCMAKE_EXPORT_COMPILE_COMMANDS=ON {shlex.quote(str(build))}"


def _targets(
    links: Sequence[Link], places: Mapping[Path, str]
) -> tuple[dict[str, tuple[str, ...]], list[str]]:
    """The modules of what a build links, and which objects of it are no modules."""
    targets, left_out = {}, []
    for link in links:
        modules = tuple(places[each] for each in link.objects if each in places)
        if missing := [each.name for each in link.objects if each not in places]:
            what = "it is left out" if not modules else "it is counted without them"
            shown = ", ".join(missing[:_SHOWN]) + (", ..." if len(missing) > _SHOWN else "")
            left_out.append(
                f"target {link.name!r}: expected modules of all its {len(link.objects)} objects, "
                f"found none of {len(missing)}: {shown}; {what}"
            )
        if modules:
            targets[link.name] = modules
    return targets, left_out

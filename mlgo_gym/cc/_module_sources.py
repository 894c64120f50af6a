"""The files that a build's modules come from, so that only what has changed is compiled again.

::

    sources.json    {"files": [PATH, ...], "modules": {NAME: {"command": ..., "reads": ..., ...}}}

As for ``make``, a file has changed when its size or time has. A module is compiled again when its
command or clang has changed, too.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from corpus_tools.children import run
from corpus_tools.extraction.embedded import ExtractedModule
from corpus_tools.extraction.recompile import BuildCommand, CompiledModule
from corpus_tools.reading import Shape, shaped
from mlgo_gym.base import EnvironmentSetupError, file_stamp, read_bounded, read_json, write_json

SOURCES_FILE: Final = "sources.json"
_MAX_BYTES: Final = 1 << 28
_MAX_MODULE_BYTES: Final = 1 << 30
_SHAPE: Final[Shape] = {
    "files": [str],
    "modules": {"*": {"command": str, "reads": [int], "stamp": str}},
}
_SUFFIXES: Final = (".bc", ".cmd")
_VARIABLES: Final = (
    "CPATH",
    "C_INCLUDE_PATH",
    "CPLUS_INCLUDE_PATH",
    "CCC_OVERRIDE_OPTIONS",
    "MLGO_CLANG",
)
_VERSION_DEADLINE_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class _Source:
    command: str
    reads: tuple[str, ...]
    stamp: str


class Sources:
    """The modules that an earlier run has left in a folder, and what they were compiled from.

    Args:
        folder: of the record.
        corpus: of the modules.
        programs: ``mlgo-cc`` and ``mlgo-c++``.

    A record that cannot be read is one of nothing: all is compiled again.
    """

    def __init__(self, folder: Path, corpus: Path, programs: tuple[str, str]) -> None:
        self._path: Final = folder / SOURCES_FILE
        self._corpus: Final = corpus
        self._programs: Final = programs
        self._stamps: dict[str, tuple[int, int] | None] = {}
        self._known: Final = self._read()
        self._now: dict[str, _Source] = {}

    def kept(self, command: BuildCommand) -> ExtractedModule | None:
        """The module of a command, if it would be compiled to the same."""
        known = self._known.get(command.name)
        if known is None or known.command != self._digest(command):
            return None
        if known.stamp != self._stamp(known.reads):
            return None
        try:
            parts = {each: (self._corpus / f"{command.name}{each}") for each in _SUFFIXES}
            module = ExtractedModule(
                command.name,
                {suffix: read_bounded(path, _MAX_MODULE_BYTES) for suffix, path in parts.items()},
            )
        except (OSError, ValueError):
            return None
        self._now[command.name] = known
        return module

    def note(self, command: BuildCommand, compiled: CompiledModule, start_ns: int) -> None:
        """Remember what a module was compiled from, since a time; not what changed meanwhile."""
        reads = tuple(
            sorted({os.path.normpath(command.directory / each) for each in compiled.reads})
        )
        stamps = [self._stamp_of(each) for each in reads]
        if all(stamp and stamp[1] < start_ns for stamp in stamps):
            self._now[command.name] = _Source(self._digest(command), reads, self._stamp(reads))

    def forget(self) -> None:
        """Delete the record, before modules are replaced."""
        self._path.unlink(missing_ok=True)

    def write(self) -> None:
        """Write what was compiled, and what was kept."""
        files = sorted({each for source in self._now.values() for each in source.reads})
        places = {path: place for place, path in enumerate(files)}
        modules = {
            name: {
                "command": source.command,
                "reads": [places[each] for each in source.reads],
                "stamp": source.stamp,
            }
            for name, source in sorted(self._now.items())
        }
        write_json(self._path, {"files": files, "modules": modules})

    def _read(self) -> Mapping[str, _Source]:
        try:
            value: dict[str, Any] = shaped(read_json(self._path, _MAX_BYTES), _SHAPE)
            files = value["files"]
            return {
                name: _Source(each["command"], _chosen(files, each["reads"]), each["stamp"])
                for name, each in value["modules"].items()
            }
        except (OSError, ValueError):
            return {}

    def _stamp(self, paths: Iterable[str]) -> str:
        stamps = [[each, self._stamp_of(each)] for each in paths]
        return hashlib.sha256(json.dumps(stamps).encode()).hexdigest()

    def _stamp_of(self, path: str) -> tuple[int, int] | None:
        if path not in self._stamps:
            self._stamps[path] = file_stamp(path)
        return self._stamps[path]

    def _digest(self, command: BuildCommand) -> str:
        about = [str(command.directory), command.arguments, command.is_cxx, self._environment]
        return hashlib.sha256(json.dumps(about).encode("utf-8", "surrogatepass")).hexdigest()

    @cached_property
    def _environment(self) -> list[str | None]:
        """The rest that decides code: clang itself, and where it looks for headers."""
        command = [self._programs[0], "--version"]
        try:
            said = run(command, encoding="utf-8", timeout=_VERSION_DEADLINE_S).stdout
        except (OSError, subprocess.SubprocessError) as error:
            raise EnvironmentSetupError(
                f"clang: cannot be asked for its version: {error}"
            ) from error
        return [said, *map(os.environ.get, _VARIABLES)]


def _chosen(files: Sequence[str], places: Sequence[int]) -> tuple[str, ...]:
    if not all(0 <= each < len(files) for each in places):
        raise ValueError(f"expected places of {len(files)} files, found others")
    return tuple(files[each] for each in places)

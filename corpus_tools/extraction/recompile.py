"""Modules of a build that left no bitcode: the commands of its ``compile_commands.json`` once more.

Clang is given what `corpus_tools.allowed` lists of a command, reads what that names, and writes
nothing but what it is asked for here.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Final, NamedTuple

from corpus_tools.allowed.driver import allowed_of_build
from corpus_tools.cc1 import (
    driver_commands,
    embedded_command,
    parse_driver_output,
    portable_command,
)
from corpus_tools.children import run, run_tool
from corpus_tools.clang import DEADLINE_S
from corpus_tools.errors import CompileError, ExtractionError
from corpus_tools.extraction.compile_commands import list_compile_commands
from corpus_tools.extraction.embedded import ExtractedModule
from corpus_tools.extraction.inputs import Outcome, Status
from corpus_tools.extraction.lto_command import own_part
from corpus_tools.manifest import encode_command
from corpus_tools.scratch import scratch_folder

_TO_BITCODE: Final = ("-w", "-emit-llvm", "-Xclang", "-disable-llvm-passes")
_OUR_OPTIONS: Final = "--mlgo-"
_ESCAPED: Final = re.compile(r"\\([ #])|(\$)\$")


class CompiledModule(NamedTuple):
    """A module, and the files that it was compiled from, relative to the command's folder."""

    module: ExtractedModule
    reads: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class BuildCommand:
    """A command of a build that compiles one source.

    Attributes:
        name: of the object, and of the module that comes of it.
        directory: where it runs.
        arguments: of clang's driver, without the program and whatever is about output.
        is_cxx: the driver was called as one of C++.
        as_built: the arguments as the build has them, with what is about output and messages.
    """

    name: str
    directory: Path
    arguments: tuple[str, ...]
    is_cxx: bool
    as_built: tuple[str, ...] = field(default=(), compare=False)

    def run(
        self,
        programs: tuple[str, str],
        arguments: Sequence[str],
        deadline_s: float = DEADLINE_S,
        *,
        as_built: bool = False,
    ) -> subprocess.CompletedProcess[str]:
        """Run it with further arguments in front.

        Args:
            programs: the driver for C, and the one for C++.
            arguments: such as what names the output.
            deadline_s: seconds after which it is killed.
            as_built: with the build's own arguments, by which clang would write what builds write.

        Raises:
            CompileError: it failed or ran past the deadline.
        """
        words = self.as_built if as_built else self.arguments
        program = programs[self.is_cxx]
        with scratch_folder() as temporary:  # of a crash, clang leaves the source there
            start = partial(
                run,
                [program, *arguments, *words],
                cwd=self.directory,
                env={**os.environ, "TMPDIR": str(temporary)},
                encoding="utf-8",
                errors="surrogateescape",
                timeout=deadline_s,
            )
            return run_tool(start, Path(program), self.name, "clang")

    def compile(
        self, programs: tuple[str, str], folder: Path, deadline_s: float = DEADLINE_S
    ) -> CompiledModule:
        """The module as the inliner would see it, which is written to a folder on the way.

        Raises:
            CompileError: clang failed, or would run more than itself once; then nothing is run.
        """
        said = self.run(programs, ["-###", "-o", "output.o"], deadline_s).stderr
        commands, jobs = parse_driver_output(said), list(driver_commands(said))
        if len(commands) != 1 or len(jobs) != 1:
            found = ", ".join(PurePosixPath(each[0]).name for each in jobs)
            raise CompileError(self.name, f"expected one -cc1 command, found {found or 'none'}")
        target, reads = folder / "module.bc", folder / "reads"
        listing = ("-MD", "-MF", str(reads))
        self.run(programs, [*_TO_BITCODE, *listing, "-o", str(target)], deadline_s)
        command = portable_command(embedded_command(commands[0], commands[0][-1]))
        files = {".bc": target.read_bytes(), ".cmd": encode_command(command)}
        return CompiledModule(ExtractedModule(self.name, files), (*_reads(reads), *self._named()))

    def _named(self) -> Iterator[str]:
        """The files that the arguments name: precompiled headers and profiles are in no list."""
        for each in self.arguments:
            for name in {each, each.partition("=")[2]}:
                if os.path.isfile(self.directory / name):  # noqa: PTH113 (too long is none)
                    yield name


def _reads(path: Path) -> list[str]:
    """The files of a list that clang has written for make, without the target."""
    text = path.read_text(encoding="utf-8", errors="surrogateescape").replace("\\\n", " ")
    words = re.split(r"(?<!\\)\s+", text.partition(": ")[2].strip())
    return [_ESCAPED.sub(lambda found: found[1] or found[2], word) for word in words if word]


def list_commands(path: Path) -> list[BuildCommand | Outcome]:
    """List the commands of a compilation database, in its order.

    Objects of one name in several folders are named by their paths below the database's.

    Raises:
        BuildListError: it is no compilation database.
    """
    listed: list[BuildCommand | Outcome] = []
    taken: dict[str, Path] = {}
    seen = set[Path]()
    for each in list_compile_commands(path, path.parent.absolute()):
        if isinstance(each, Outcome):
            listed.append(each)
        elif (other := taken.setdefault(each.name, each.path)) != each.path:
            reason = f"expected a name of its own, found that of {other}"
            listed.append(Outcome(each.label, Status.FAILED, reason=reason))
        elif each.path in seen:
            listed.append(Outcome(each.label, Status.SKIPPED, reason="listed twice"))
        else:
            seen.add(each.path)
            listed.append(_command(each.label, each.name, each.base_dir, each.driver_command))
    return listed


def _command(
    label: str, name: str, directory: Path, command: Sequence[str]
) -> BuildCommand | Outcome:
    words = [each for each in own_part(command) if not each.startswith(_OUR_OPTIONS)]
    program, *arguments = words or [""]
    try:
        allowed = allowed_of_build(arguments)
    except ExtractionError as error:
        return Outcome(label, Status.FAILED, reason=str(error))
    is_cxx = "++" in PurePosixPath(program).name or "--driver-mode=g++" in command
    return BuildCommand(name, directory, tuple(allowed), is_cxx, tuple(arguments))

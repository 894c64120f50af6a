"""The jobs that clang's driver makes of a command line: what they write, and doing them elsewhere.

Clang is asked (``-###``), since only it knows all spellings: response files, ``--output=``, ``--``.
"""

from __future__ import annotations

import stat
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from corpus_tools.cc1 import driver_commands

_WRITTEN: Final = (
    *("-o", "-dependency-file", "-diagnostic-log-file", "-header-include-file"),
    *("-opt-record-file", "-serialize-diagnostic-file", "-split-dwarf-output", "-stack-usage-file"),
)
"""Options of jobs with the name of a file behind them that is written."""
_WRITTEN_JOINED: Final = (
    *("-coverage-notes-file=", "-fmodule-output=", "-ftime-trace=", "-stats-file="),
)
_UNOPTIMISED: Final = frozenset({"-E", "-disable-llvm-passes"})
_STANDARD_STREAM: Final = "-"


@dataclass(frozen=True, slots=True)
class Jobs:
    """What clang runs for a command line, in order; nothing where it refuses the command line."""

    commands: tuple[tuple[str, ...], ...]

    @classmethod
    def of(cls, clang: str, arguments: Sequence[str]) -> Self:
        """Ask clang, which runs none of them."""
        done = subprocess.run(
            [clang, "-###", *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            errors="surrogateescape",
            close_fds=False,
            check=False,
        )
        return cls(() if done.returncode else tuple(driver_commands(done.stderr)))

    @property
    def reads_standard_input(self) -> bool:
        return any(command[-1] == _STANDARD_STREAM for command in self.commands)

    @property
    def optimised(self) -> tuple[str, ...]:
        """The input of each job that LLVM's optimiser takes part in."""
        commands = [each for each in self.commands if each[1:2] == ("-cc1",)]
        return tuple(each[-1] for each in commands if _UNOPTIMISED.isdisjoint(each))

    @property
    def output(self) -> Path | None:
        """What the last one writes."""
        name = _output(self.commands[-1]) if self.commands else None
        return None if name is None else Path(name)

    @property
    def objects(self) -> tuple[Path, ...]:
        """The object files that are there when all have ended, but for one in a standard stream."""
        found = []
        for number, command in enumerate(self.commands, 1):
            name = _output(command)
            later = {word for other in self.commands[number:] for word in other}
            if name and _makes_object(command) and name not in {*later, _STANDARD_STREAM}:
                found.append(Path(name))
        return tuple(found)

    @property
    def stream(self) -> str | None:
        """A file that they name and that cannot be read twice, such as a pipe."""
        words = (word for command in self.commands for word in command)
        return next((word for word in words if is_stream(word)), None)

    def elsewhere(self, folder: Path) -> Jobs:
        """The same jobs, whose files are written into a folder; the objects keep their order."""
        places: dict[str, str] = {}
        return Jobs(tuple(tuple(_moved(each, folder, places)) for each in self.commands))


def _output(command: Sequence[str]) -> str | None:
    named = [at for at, word in enumerate(command[:-1], 1) if word == "-o"]
    return command[named[-1]] if named else None


def _makes_object(command: Sequence[str]) -> bool:
    """Whether it is the compiler's, or an assembler of clang's or of the system's."""
    program = Path(command[0]).name
    is_assembler = command[1:2] == ("-cc1as",) or program == "as" or program.endswith("-as")
    return is_assembler or "-emit-obj" in command


def is_stream(name: str) -> bool:
    """Whether a file is there whose contents are gone once they were read."""
    try:
        mode = Path(name).stat().st_mode
    except (OSError, ValueError):
        return False
    return name != "/dev/null" and not stat.S_ISREG(mode) and not stat.S_ISDIR(mode)


def _moved(command: Sequence[str], folder: Path, places: dict[str, str]) -> Iterator[str]:
    previous = ""
    for at, word in enumerate(command, 1):
        joined = next(filter(word.startswith, _WRITTEN_JOINED), "")
        if previous in _WRITTEN or joined:
            name = word.removeprefix(joined)
            place = str(folder / f"{len(places)}{Path(name).suffix}")
            yield joined + places.setdefault(name, place)
        else:
            yield places.get(word, word) if at == len(command) else word  # the input comes last
        previous = word

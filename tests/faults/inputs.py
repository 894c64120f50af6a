"""``make inputs``: every command with each of its paths leading to what it cannot be.

A path is missing, empty, of no format, of another, a folder, a damaged corpus and model in one, a
FIFO, below a file, on a full disk, or 6 GiB of nothing. The command takes it or refuses it in a
line, with status 0, 1 or 2; nothing is a traceback or a signal, and what waits for a FIFO's other
end is interrupted in a line. ``python -m tests.faults.inputs WORD...`` tries the commands of these
names alone.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from corpus_tools.manifest import MANIFEST_NAME
from mlgo_gym.cli._main import CommandParser, whole
from tests.cli.command import PROGRAM

ROOT: Final = Path(__file__).parents[2]
DEADLINE_S: Final = 60.0
INTERRUPTED: Final = 130
LONGEST_LINE: Final = 600
HUGE_BYTES: Final = 6 << 30


def _damaged(path: Path) -> None:
    """A folder that is a corpus, a model, a suite and a build at first sight."""
    path.mkdir()
    (path / MANIFEST_NAME).write_text('{"modules": ["m"]}')
    (path / "m.bc").write_bytes(b"BC")
    (path / "card.json").write_text("[]")
    (path / "model.tflite").write_bytes(b"x" * 50)
    for name in ("suite.json", "compile_commands.json"):
        (path / name).write_text("[1]")


def _below_a_file(path: Path) -> None:
    path.parent.write_bytes(b"x")


def _sparse(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(HUGE_BYTES)


KINDS: Final[dict[str, tuple[str, Callable[[Path], object]]]] = {
    "missing": ("none/it", lambda _: None),
    "empty": ("it.json", Path.touch),
    "of no format": ("it.bc", lambda path: path.write_bytes(bytes(range(256)) * 8)),
    "of another": ("it.txt", lambda path: path.write_text('{"a": [1, 2]}\n')),
    "a folder": ("it", Path.mkdir),
    "damaged": ("it", _damaged),
    "a FIFO": ("it", os.mkfifo),
    "below a file": ("file/it", _below_a_file),
    "a full disk": ("it", lambda path: path.symlink_to("/dev/full")),
    "huge": ("it", _sparse),
}
"""What a path leads to: its name, and what makes it."""


@dataclass(frozen=True)
class Case:
    """A command's option, or argument, that is a path, and what it leads to."""

    words: tuple[str, ...]
    option: str
    kind: str

    def __str__(self) -> str:
        return f"{' '.join(self.words)}: {self.option} {self.kind}"


def commands(
    parser: CommandParser | None = None, words: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], CommandParser]]:
    """Every command, with the words that call it."""
    parser = parser or whole()
    for name, command in parser.commands.items():
        if command.commands:
            yield from commands(command, (*words, name))
        else:
            yield (*words, name), command


def is_path(action: argparse.Action) -> bool:
    kind = getattr(action.type, "__name__", "")
    named = {"FILE", "DIR", "IN", "OUT"}
    return kind in {"path", "place", "model", "find_model", "Path"} or action.metavar in named


def cases() -> Iterator[Case]:
    for words, parser in commands():
        for action in filter(is_path, parser._actions):
            for kind in KINDS:
                yield Case(words, (*action.option_strings, action.dest)[0], kind)


def line(case: Case, parser: CommandParser, folder: Path) -> list[str]:
    """The command line: the path, and of what is needed besides, something that is well."""
    name, make = KINDS[case.kind]
    path = folder / "bad" / name
    (folder / "bad").mkdir()
    make(path)
    found = list(case.words)
    for action in parser._actions:
        option = next(iter(action.option_strings), None)
        value = str(path) if case.option in {option, action.dest} else _well(action, folder)
        if value is not None:
            found += [option, value] if option else [value]
    return found


_GIVEN: Final = {"--budget": "2s", "--timeout": "20s", "--jobs": "1"}
_NEEDED: Final = {"model": "inlining-for-size", "find_model": "inlining-for-size"}
_NAMED: Final = {"NAME": "xxhash", "N": "1"}


def _well(action: argparse.Action, folder: Path) -> str | None:
    """A value that keeps a command short, or that it cannot do without."""
    option = next(iter(action.option_strings), "")
    given = {"--corpus": str(folder / "corpus"), **_GIVEN}
    if option in given or not action.required:
        return given.get(option)
    if needed := _NEEDED.get(getattr(action.type, "__name__", "")):
        return needed
    if action.choices:
        return str(next(iter(action.choices)))
    if is_path(action):
        is_output = option in {"--output", "-o", "--into"}
        return str(folder / "out" if is_output else folder / "corpus" / "digest.c.bc")
    return _NAMED.get(str(action.metavar), "x")


def small_corpus(folder: Path, names: Sequence[str] = ("digest.c", "scene.cpp")) -> None:
    """Some modules of the sample, by links."""
    from mlgo_gym import SAMPLE_CORPUS  # noqa: PLC0415 - of each process once

    folder.mkdir()
    for each in Path(SAMPLE_CORPUS).iterdir():
        if each.stem in names:
            (folder / each.name).symlink_to(each)
    (folder / MANIFEST_NAME).write_text(json.dumps({"modules": [*names], "has_thinlto": False}))


def tried(case: Case, parser: CommandParser, folder: Path) -> tuple[str, str]:
    """What a command's end is called, and what is wrong with it, if something is."""
    small_corpus(folder / "corpus")
    with subprocess.Popen(
        [*PROGRAM, *line(case, parser, folder)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "80"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        start_new_session=True,
    ) as process:
        waits = False
        try:
            _, said = process.communicate(timeout=DEADLINE_S)
        except subprocess.TimeoutExpired:
            waits = True
            process.send_signal(signal.SIGINT)
            try:
                _, said = process.communicate(timeout=DEADLINE_S)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                return "hung", "it does not end when it is interrupted"
    return _judged(case, process.returncode, said.decode("utf-8", "replace"), waits=waits)


def _judged(case: Case, status: int, said: str, *, waits: bool) -> tuple[str, str]:
    if "Traceback" in said or status not in {0, 1, 2, INTERRUPTED}:
        return "broken", f"status {status}: {said[-300:]}"
    if waits:
        return "waited", "" if case.kind == "a FIFO" else "it goes on"
    if any(len(each) > LONGEST_LINE for each in said.splitlines()):
        return "long", said[:LONGEST_LINE]
    if status and not said:
        return "silent", f"status {status}"
    return ("refused" if status else "taken"), ""


def main() -> int:
    """Try them all; the status is 1 if something is wrong."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # children would ignore it, too
    parsers = dict(commands())
    chosen = [each for each in cases() if set(sys.argv[1:]) <= set(each.words)]

    def one(case: Case) -> tuple[Case, str, str]:
        with tempfile.TemporaryDirectory() as folder:
            return case, *tried(case, parsers[case.words], Path(folder))

    counts: Counter[Any] = Counter()
    status = 0
    with ThreadPoolExecutor(os.cpu_count()) as threads:
        for case, end, wrong in threads.map(one, chosen):
            counts[end] += 1
            if wrong:
                print(f"{case}: {end}: {wrong}", flush=True)
                status = 1
    print(f"{len(parsers)} commands, {len(chosen)} inputs: {dict(counts)}")
    return status


if __name__ == "__main__":
    sys.exit(main())

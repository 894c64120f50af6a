"""``make faults``: lets every call fail, one at a time, and sends signals at random moments.

One line for each scenario, place and kind: how many faults were tried, how many the work survived,
how many it said, how many broke a promise, and how many, killed, left what they were writing.
``build/faults.json`` keeps them all, what is broken with its reason; the same command goes on where
it stopped.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import subprocess
import sys
import tempfile
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Final

from mlgo_gym.base import _files as files
from mlgo_gym.training._train import TENSORFLOW_SETTINGS
from tests.conftest import require
from tests.faults.scenarios import SCENARIOS

ROOT: Final = Path(__file__).parents[2]
KINDS: Final = ("ENOSPC", "EIO", "ENOMEM", "EMFILE")
SIGNALS: Final = {"host": ("SIGKILL", "SIGINT"), "children": ("SIGKILL",)}
"""An interrupt is for all processes of a terminal, which the host's children are."""
PLACES: Final = ("host", "children")
"""In the process that is asked, or in each of the programs that it starts."""


_MISSED: Final = {"host": 1, "children": 20}


def build_library(folder: Path, name: str) -> Path:
    """Compile what is loaded before all else of a process, out of a source of that name here."""
    target = folder / f"{name}.so"
    source = Path(__file__).with_name(f"{name}.c")
    command = [require("cc", "gcc"), "-O1", "-Wall", "-Werror", "-shared", "-fPIC"]
    subprocess.run([*command, "-o", target, source], check=True)
    return target


class Bench(AbstractContextManager["Bench"]):
    """A process that does a scenario's work again and again, with a fault in each."""

    def __init__(self, library: Path, scenario: str, place: str) -> None:
        self._folder = tempfile.TemporaryDirectory()
        temporary = Path(self._folder.name) / "tmp"
        temporary.mkdir()
        own = {"LD_PRELOAD": str(library), "TMPDIR": str(temporary), "PYTHONPATH": str(ROOT)}
        quiet = {"PYTHONDONTWRITEBYTECODE": "1", "COLUMNS": "80", **TENSORFLOW_SETTINGS}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.faults.bench", library, scenario, place],
            cwd=self._folder.name,
            env=os.environ | own | quiet,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def fault(self, kind: str, number: int) -> dict[str, Any]:
        """What came of the n-th call of a kind that failed."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{kind} {number}\n")
        self._process.stdin.flush()
        return {"number": number, **json.loads(self._process.stdout.readline())}

    def __exit__(self, *_: object) -> None:
        self._process.communicate()
        self._folder.cleanup()


def main() -> int:
    """Run what is asked for; 1 where something is broken."""
    parser = argparse.ArgumentParser(prog="make faults", description=__doc__)
    parser.add_argument("--last", type=int, default=200, help="the last call of a kind that fails")
    parser.add_argument("--only", nargs="*", choices=SCENARIOS, default=list(SCENARIOS))
    parser.add_argument("--kind", nargs="*", help="of calls that fail, or a signal; by default all")
    parser.add_argument("--place", nargs="*", choices=PLACES, default=PLACES)
    parser.add_argument("--again", action="store_true", help="what broke before is tried again")
    parser.add_argument("--record", type=Path, default=ROOT / "build" / "faults.json")
    options = parser.parse_args()
    options.record.parent.mkdir(exist_ok=True)
    known = json.loads(options.record.read_bytes()) if options.record.exists() else {}
    broken = 0
    with tempfile.TemporaryDirectory() as folder:
        library = build_library(Path(folder), "interpose")
        for scenario, place in itertools.product(options.only, options.place):
            with Bench(library, scenario, place) as bench:
                for kind in options.kind or (*KINDS, *SIGNALS[place]):
                    if kind in KINDS and place not in SCENARIOS[scenario].calls:
                        continue
                    rows = known.setdefault(f"{scenario} {place} {kind}", [])
                    for row in rows if options.again else ():
                        if row["bad"]:
                            row.update(bench.fault(kind, row["number"]))
                            files.write_json(options.record, known)
                    while len(rows) < options.last and not _is_over(kind, rows, place):
                        rows.append(bench.fault(kind, len(rows) + 1))
                        files.write_json(options.record, known)
                    broken += _line(f"{scenario:10}{place:10}{kind:8}", rows)
    return 1 if broken else 0


def _is_over(kind: str, rows: list[dict[str, Any]], place: str) -> bool:
    """Whether the work makes no more such calls; of several programs, one may make fewer."""
    missed = _MISSED[place]
    return kind in KINDS and len(rows) >= missed and not any(row["fired"] for row in rows[-missed:])


def _line(name: str, rows: list[dict[str, Any]]) -> int:
    tried = [row for row in rows if row["fired"]]
    bad = [row for row in tried if row["bad"]]
    said = sum(row["status"] != 0 for row in tried) - len(bad)
    left = sum(bool(row.get("left")) for row in tried)
    counts = f"{len(tried):5} tried {said:5} said {len(bad):5} broken {left:5} left a .partial"
    print(f"{name}{counts}", flush=True)
    for row in bad:
        print(f"  {row['number']}: {row['bad'].strip().splitlines()[-1]}")
    return len(bad)


if __name__ == "__main__":
    sys.exit(main())

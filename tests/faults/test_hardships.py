"""Every command has a line that is tried where the machine is not well (``make hardships``)."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from mlgo_gym.cli._main import parser
from tests.conftest import require
from tests.faults.__main__ import build_library
from tests.faults.hardships import ENDLESS, LINES, NOT_OURS, ONCE, TIMED, names

DAY = "import datetime, time; print(datetime.date.today().year, time.monotonic() < 3e9)"


def test_every_command_has_a_line() -> None:
    assert set(LINES) == set(names())
    assert {*ENDLESS, *TIMED, *ONCE, *(name for name, _ in NOT_OURS)} <= set(LINES)


@pytest.mark.parametrize("name", LINES)
def test_lines_are_understood(name: str) -> None:
    assert parser().parse_args([*name.split(), *LINES[name]]).command == name


def test_another_day(tmp_path: Path) -> None:
    """The clock tells another day, and durations stay true."""
    require("cc", "gcc")
    library = build_library(tmp_path, "clock")
    own = {"LD_PRELOAD": str(library), "MLGO_DAY": "2040"}
    done = subprocess.run([sys.executable, "-c", DAY], env=own, capture_output=True, check=True)
    assert done.stdout.split() == [b"2040", b"True"]
    jumps = "import time; print(sorted({round((time.sleep(0.11), time.time())[1] / 3600) "
    jumps += "for _ in range(6)}))"
    own["MLGO_DAY"] = "jumps"
    done = subprocess.run([sys.executable, "-c", jumps], env=own, capture_output=True, check=True)
    first, *_, last = json.loads(done.stdout)
    assert last - first >= 2

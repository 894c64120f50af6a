"""What fuzzing has found is read again: it is taken, or refused by an error that names it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fuzz.targets import OWN, TARGETS

FOUND = sorted((Path(__file__).parent / "findings").glob("*/*"))

ROOT = Path(__file__).parents[2]
READING = """
import resource, sys
from pathlib import Path
from tests.fuzz.targets import OWN, TARGETS

resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
try:
    TARGETS[sys.argv[1]].read(Path(sys.argv[2]))
except OWN as error:
    assert sys.argv[2] in str(error)
"""


@pytest.mark.parametrize("found", FOUND, ids=lambda path: f"{path.parent.name}-{path.name}")
def test_a_finding_is_none_now(found: Path, tmp_path: Path) -> None:
    target = TARGETS[found.parent.name.replace("-", " ")]
    target.around(tmp_path)
    path = tmp_path / target.name
    path.write_bytes(found.read_bytes())
    if target.may_abort:
        done = subprocess.run(
            [sys.executable, "-c", READING, found.parent.name, str(path)],
            env=os.environ | {"PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode in {0, -signal.SIGABRT}, done.stderr
        return
    try:
        target.read(path)
    except OWN as error:
        assert not target.names_it or path.name in str(error) or str(tmp_path) in str(error)

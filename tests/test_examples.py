"""The examples run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = sorted((Path(__file__).parent.parent / "examples").glob("*.py"))


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_it_runs_and_says_something(example: Path) -> None:
    done = subprocess.run([sys.executable, example], capture_output=True, text=True, check=True)
    assert done.stdout
    assert done.stderr == ""

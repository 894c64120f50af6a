"""The fuzzer: a run of a seed goes on where it stopped, and says what came of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import tests.fuzz

ROOT = Path(tests.fuzz.__file__).parents[2]


@pytest.mark.e2e
def test_a_run_that_goes_on(tmp_path: Path) -> None:
    counts = []
    for count in (30, 50):
        arguments = ["--seed", "5", "--count", str(count), "--target", "zip", "--target", "record"]
        done = subprocess.run(
            [sys.executable, "-m", "tests.fuzz", *arguments],
            cwd=tmp_path,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        found = json.loads((tmp_path / "build" / "fuzz" / "summary.json").read_text())
        assert found.pop("seed") == 5
        assert list(found) == ["zip", "record"]
        for each in found.values():
            assert each["taken"] + each["refused"] == each["inputs"] == count
            assert each["findings"] == 0
        counts.append(found["zip"]["refused"])
    assert 0 < counts[0] <= counts[1]

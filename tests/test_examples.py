"""The examples run."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import lacking

EXAMPLES = sorted((Path(__file__).parent.parent / "examples").glob("*.py"))


NEEDS = {"eviction_maskable_ppo": "sb3_contrib"}


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_it_runs_and_says_something(example: Path) -> None:
    package = NEEDS.get(example.stem)
    if package and not importlib.util.find_spec(package):
        lacking(f"needs {package}: pip install 'mlgo-gym[test-rl]'")
    done = subprocess.run([sys.executable, example], capture_output=True, text=True, check=True)
    assert done.stdout
    assert done.stderr == ""

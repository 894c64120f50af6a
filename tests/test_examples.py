"""The examples run."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import lacking

ROOT = Path(__file__).parent.parent
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))

NEEDS = {
    "eviction_maskable_ppo": "sb3_contrib",
    "inlining_sb3_ppo": "stable_baselines3",
    "torch_mlp_to_model": "torch",
}
APART = "inlining_rllib_ppo"
"""Ray wants one version of Gymnasium, so that it has a virtual environment of its own."""

APART_PYTHON = ROOT / ".venv-scale" / "bin" / "python"
QUIET = {"TF_CPP_MIN_LOG_LEVEL": "3", "TF_ENABLE_ONEDNN_OPTS": "0"}
"""TensorFlow greets on standard error otherwise."""

GREETING = "INFO: Created TensorFlow Lite XNNPACK delegate for CPU.\n"
"""TFLite's, which nothing silences."""


def run(python: str | Path, example: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [python, example], capture_output=True, text=True, check=True, env=os.environ | QUIET
    )


@pytest.mark.e2e
@pytest.mark.parametrize(
    "example", [each for each in EXAMPLES if each.stem != APART], ids=lambda path: path.stem
)
def test_it_runs_and_says_something(example: Path) -> None:
    package = NEEDS.get(example.stem)
    if package and not importlib.util.find_spec(package):
        lacking(f"needs {package}: pip install 'mlgo-gym[test-rl]'")
    done = run(sys.executable, example)
    assert done.stdout
    assert done.stderr.replace(GREETING, "") == ""


@pytest.mark.stress
def test_rllib_runs() -> None:
    # Ray itself is for development; what RLlib needs besides is apart.
    python = sys.executable if importlib.util.find_spec("tree") else APART_PYTHON
    if not Path(python).exists():
        lacking("needs RLlib, in a virtual environment of its own: make scale")
    done = run(python, ROOT / "examples" / f"{APART}.py")
    assert done.stdout == "256 decisions in one iteration\n"

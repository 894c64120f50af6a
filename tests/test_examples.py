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
    "inlining_ppo": "torch",
    "inlining_rllib_ppo": "ray",
    "inlining_sb3_ppo": "stable_baselines3",
    "inlining_torchrl_iql": "torchrl",
    "inlining_torchrl_ppo": "torchrl",
    "torch_to_model": "torch",
}
ELSEWHERE = ("eviction_rllib_ppo", "inlining_rllib_marwil")
"""They run in tests/lab/cluster/test_cluster.py, on several nodes."""

QUIET = {
    "TF_CPP_MIN_LOG_LEVEL": "3",
    "TF_ENABLE_ONEDNN_OPTS": "0",
    "RL_LOGGING_LEVEL": "ERROR",
    "TQDM_DISABLE": "1",
}
"""TensorFlow greets on standard error otherwise, and TorchRL says how far it is."""

GREETING = "INFO: Created TensorFlow Lite XNNPACK delegate for CPU.\n"
"""TFLite's, which nothing silences."""


def run(example: Path, home: Path) -> subprocess.CompletedProcess[str]:
    """What an example prints; what RLlib writes goes to a home of its own."""
    return subprocess.run(
        [sys.executable, example],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | QUIET | {"HOME": str(home)},
    )


@pytest.mark.e2e
@pytest.mark.parametrize(
    "example", [each for each in EXAMPLES if each.stem not in ELSEWHERE], ids=lambda path: path.stem
)
def test_it_runs_and_says_something(example: Path, tmp_path: Path) -> None:
    package = NEEDS.get(example.stem)
    if package and not importlib.util.find_spec(package):
        lacking(f"needs {package}: pip install 'mlgo-gym[test-rl,scale]'")
    done = run(example, tmp_path)
    assert done.stdout
    assert done.stderr.replace(GREETING, "") == ""

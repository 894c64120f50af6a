"""An llvmlite that is too old: the real one, from PyPI."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.slow
def test_it_is_refused(tmp_path: Path) -> None:
    options = ["--quiet", "--no-deps", "--target", str(tmp_path)]
    command = [sys.executable, "-m", "pip", "install", *options]
    subprocess.run([*command, "llvmlite==0.47.0"], check=True)
    environment = os.environ | {"PYTHONPATH": str(tmp_path)}
    doctor = [sys.executable, "-m", "mlgo_gym.cli._main", "doctor", "--json"]
    done = subprocess.run(doctor, capture_output=True, text=True, env=environment, check=False)
    message = "llvmlite: expected version 0.48 or newer, found 0.47.0; run: pip install"
    assert done.returncode == 1
    assert message in done.stdout

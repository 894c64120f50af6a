"""An llvmlite that is too old, and one of another LLVM: the real one, from PyPI."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.network


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("old")
    options = ["--quiet", "--no-deps", "--target", str(folder)]
    command = [sys.executable, "-m", "pip", "install", *options]
    subprocess.run([*command, "llvmlite==0.47.0"], check=True)
    return folder


def _doctor(folder: Path, **settings: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": str(folder)} | settings
    doctor = [sys.executable, "-m", "mlgo_gym.cli._main", "doctor", "--json"]
    return subprocess.run(doctor, capture_output=True, text=True, env=environment, check=False)


def test_one_that_is_too_old_is_refused(old: Path) -> None:
    done = _doctor(old)
    message = "llvmlite: expected version 0.48 or newer, found 0.47.0; run: pip install"
    assert done.returncode == 1
    assert message in done.stdout


def test_another_llvm_is_refused_whatever_the_metadata_say(old: Path, tmp_path: Path) -> None:
    shutil.copytree(old / "llvmlite", tmp_path / "llvmlite")
    done = _doctor(tmp_path)
    assert done.returncode == 1
    assert (
        "LLVM: expected version 22, found 20.1.8 in llvmlite 0.47.0; "
        "run: pip install 'llvmlite>=0.48,<0.51', or set MLGO_ANY_LLVM=1 to go on at your own risk"
    ) in done.stdout
    lifted = _doctor(tmp_path, MLGO_ANY_LLVM="1")
    assert lifted.returncode == 0
    assert '"found": "20.1.8"' in lifted.stdout

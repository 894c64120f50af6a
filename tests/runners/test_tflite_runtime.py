"""The older package of TFLite, in an environment of its own: it needs numpy 1 and Python 3.11."""

from __future__ import annotations

import subprocess
import sys
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent


@pytest.mark.network
@pytest.mark.e2e
@pytest.mark.skipif(sys.version_info >= (3, 12), reason="needs Python 3.11: the last with it")
def test_models_under_training_run_on_it(tmp_path: Path) -> None:
    venv.create(tmp_path / "old", with_pip=True)
    python = tmp_path / "old" / "bin" / "python"
    packages = [
        "tflite-runtime==2.14.0",
        "numpy<2",
        "pytest",
        "hypothesis",
        "psutil",
        "pytest-timeout",
    ]
    install = [str(python), "-m", "pip", "install", "--quiet", str(ROOT), *packages]
    subprocess.run(install, check=True, cwd=tmp_path)
    tests = "tests/runners/test_under_training.py"
    done = subprocess.run(
        [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", tests],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in done.stdout
    assert "skipped" not in done.stdout

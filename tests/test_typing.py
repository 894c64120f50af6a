"""Another project's type checkers see the package's types, through its stubs and ``py.typed``."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests import consumer

SOURCE = Path(consumer.__file__)


def check(folder: Path, *command: str | Path) -> str:
    shutil.copy(SOURCE, folder)
    done = subprocess.run(
        [*command, SOURCE.name], cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout
    wrong = (folder / "wrong.py").resolve()
    wrong.write_text('import mlgo_gym\n\nmlgo_gym.Compiler(timeout_s="soon")\n')
    failed = subprocess.run(
        [*command, wrong], cwd=folder, capture_output=True, text=True, check=False
    )
    assert failed.returncode == 1  # so the types are seen
    return failed.stdout


@pytest.mark.e2e
def test_mypy(tmp_path: Path) -> None:
    said = check(tmp_path, sys.executable, "-m", "mypy", "--strict")
    assert 'Argument "timeout_s" to "Compiler" has incompatible type "str"' in said


@pytest.mark.network
def test_pyright(tmp_path: Path) -> None:
    uvx = Path(sys.executable).with_name("uvx")
    said = check(tmp_path, uvx, "pyright", "--pythonpath", sys.executable)
    assert "reportArgumentType" in said

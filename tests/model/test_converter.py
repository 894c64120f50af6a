"""Networks straight from TensorFlow's converter; must not be skipped in CI."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.model.make_models import FOLDER

PROGRAM = """
import sys
from tests.model.make_models import convert, networks
for name in sys.argv[2:]:
    compute, inputs = networks()[name]
    open(f"{sys.argv[1]}/{name}.tflite", "wb").write(convert(compute, inputs))
"""


NAMES = ("dense", "embedding", "candidates")


@pytest.mark.e2e
def test_the_committed_models_are_what_the_converter_writes(tmp_path: Path) -> None:
    root = Path(__file__).parent.parent.parent
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path), *NAMES],
        capture_output=True,
        text=True,
        cwd=root,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    for name in NAMES:
        assert operators(tmp_path / f"{name}.tflite") == operators(FOLDER / f"{name}.tflite")


def operators(path: Path) -> list[str]:
    from mlgo_gym.model._tflite_reader import read_tflite  # noqa: PLC0415

    return [operator.kind for operator in read_tflite(path).operators]

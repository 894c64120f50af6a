"""The wheel, installed into an empty environment far from the checkout, does the main job."""

from __future__ import annotations

import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).parent.parent


def test_the_wheel_runs_the_demo(tmp_path: Path) -> None:
    subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--outdir", tmp_path / "dist", ROOT],
        check=True,
        capture_output=True,
    )
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    venv.create(tmp_path / "empty", with_pip=True)
    programs = tmp_path / "empty" / "bin"
    subprocess.run([programs / "pip", "install", "--quiet", wheel], check=True, cwd=tmp_path)
    done = subprocess.run(
        [programs / "mlgo-gym", "demo"], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert "22 of 22 objects are equal byte for byte" in " ".join(done.stdout.split())
    assert (tmp_path / "mlgo-gym-demo.png").exists()
    script = "import corpus_tools as t; print(len(t.available_recipes()) > 5, t.__file__)"
    found = subprocess.run(
        [programs / "python", "-c", script],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert found.stdout.startswith(f"True {tmp_path / 'empty'}")

"""The wheel, installed into an empty environment far from the checkout, does the main job."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from pathlib import Path

from tests.conftest import require

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
    printed = " ".join(done.stdout.split())
    assert "pip install 'mlgo-gym[train]'" in printed
    assert "The model that ships with mlgo_gym takes its place" in printed
    assert "5 of 5 objects are equal byte for byte" in printed
    assert (tmp_path / "mlgo-gym-demo.png").exists()
    assert (tmp_path / "mlgo-gym-demo" / "frozen" / "inliner.h").exists()
    script = "import corpus_tools as t; print(len(t.available_recipes()) > 5, t.__file__)"
    found = subprocess.run(
        [programs / "python", "-c", script],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert found.stdout.startswith(f"True {tmp_path / 'empty'}")
    (tmp_path / "f.c").write_text("static int g(void) { return 1; } int f(void) { return g(); }\n")
    settings = {
        "MLGO_CLANG": require("clang-22", "clang-22"),
        "MLGO_CACHE": str(tmp_path / "cache"),
        "MLGO_INLINING_MODEL": str(ROOT / "tests" / "models" / "inliner"),
        "MLGO_STRICT": "1",
    }
    for program in ("mlgo-cc", "mlgo-c++"):
        command = [str(programs / program), "-O2", "-x", "c", "-c", "f.c", "-o", f"{program}.o"]
        subprocess.run(command, cwd=tmp_path, env={**os.environ, **settings}, check=True)
        assert (tmp_path / f"{program}.o").is_file()

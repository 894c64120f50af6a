"""The wheel, installed into an empty environment far from the checkout, does the main job."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path
from typing import Any

import pytest

from mlgo_gym import __version__
from tests.conftest import require

ROOT = Path(__file__).parent.parent
LARGEST_BYTES = 10 << 20
QUIET = {"TF_CPP_MIN_LOG_LEVEL": "3", "TF_ENABLE_ONEDNN_OPTS": "0"}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(ROOT, tmp_path_factory.mktemp("dist"))


def built(project: Path, folder: Path) -> Path:
    command: list[str | Path] = [
        sys.executable,
        "-m",
        "build",
        "--wheel",
        "--outdir",
        folder,
        project,
    ]
    subprocess.run(command, check=True, capture_output=True)
    (found,) = folder.glob("*.whl")
    return found


@pytest.mark.network
def test_the_wheel_holds_the_packages_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        sizes = {each.filename: each.file_size for each in archive.infolist()}
        metadata = archive.read(f"mlgo_gym-{__version__}.dist-info/METADATA").decode()
    expected = {*_sources("mlgo_gym"), *_sources("corpus_tools")}
    expected |= {f"mlgo_gym/model/shipped/{name}" for name in _sources("models")}
    beside = {name for name in sizes if name.partition("/")[0].startswith("mlgo_gym-")}
    assert sizes.keys() - beside == expected
    assert beside == {
        f"mlgo_gym-{__version__}.{name}"
        for name in (
            "data/scripts/mlgo-c++",
            "data/scripts/mlgo-cc",
            "data/scripts/mlgo-launch",
            "dist-info/METADATA",
            "dist-info/RECORD",
            "dist-info/WHEEL",
            "dist-info/entry_points.txt",
            "dist-info/licenses/LICENSE",
        )
    }
    assert f"\nVersion: {__version__}\n" in metadata
    assert "\nLicense-Expression: Apache-2.0 WITH LLVM-exception\n" in metadata
    assert sum(sizes.values()) < LARGEST_BYTES


def _sources(folder: str) -> list[str]:
    """The files of a folder, by names as the wheel should have them."""
    files = (path for path in (ROOT / folder).rglob("*") if path.is_file())
    names = (path.relative_to(ROOT).as_posix() for path in files)
    return [name.removeprefix("models/") for name in names if "__pycache__" not in name]


@pytest.mark.network
@pytest.mark.e2e
def test_the_wheel_runs_the_demo(wheel: Path, tmp_path: Path) -> None:
    venv.create(tmp_path / "empty", with_pip=True)
    programs = tmp_path / "empty" / "bin"
    subprocess.run([programs / "pip", "install", "--quiet", wheel], check=True, cwd=tmp_path)
    done = subprocess.run(
        [programs / "mlgo-gym", "demo"], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    printed = " ".join(done.stdout.split())
    assert "pip install 'mlgo-gym[train]'" in printed
    assert "Only the shipped model is compared" in printed
    assert "5 of 5 objects are equal byte for byte" in printed
    assert "pip install 'mlgo-gym[plot]'" in printed
    assert not (tmp_path / "mlgo-gym-demo.png").exists()
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
    launched = {"mlgo-launch": [settings["MLGO_CLANG"]]}
    for program in ("mlgo-cc", "mlgo-c++", "mlgo-launch"):
        arguments = ["-O2", "-x", "c", "-c", "f.c", "-o", f"{program}.o"]
        command = [str(programs / program), *launched.get(program, []), *arguments]
        subprocess.run(command, cwd=tmp_path, env={**os.environ, **settings}, check=True)
        assert (tmp_path / f"{program}.o").is_file()


EPISODE = """
import gymnasium, json, mlgo_gym
env = gymnasium.make("mlgo_gym/InliningForLoadedSize-v0")
_, info = env.reset(options={"module": "hash_map.c"})
ended = False
while not ended:
    _, reward, terminated, truncated, info = env.step(0)
    ended = terminated or truncated
print(json.dumps([reward, *(int(info[f"{kind}loaded_size_bytes"]) for kind in ("", "baseline_"))]))
"""


class Installation:
    """An environment with the wheel and the third party's package, and the tests' dependencies."""

    def __init__(self, folder: Path, *wheels: Path) -> None:
        venv.create(folder, with_pip=False)
        self.programs = folder / "bin"
        pip = [sys.executable, "-m", "pip", "--python", str(self.programs / "python"), "install"]
        subprocess.run([*pip, "--quiet", "--no-deps", *wheels], check=True)
        site = sysconfig.get_path("purelib", vars={"base": str(folder)})
        (Path(site) / "dependencies.pth").write_text(sysconfig.get_path("purelib"))

    def run(self, *command: str | Path) -> str:
        done = subprocess.run(
            [self.programs / command[0], *command[1:]],
            cwd=self.programs.parent,
            env={name: text for name, text in os.environ.items() if name != "PYTHONPATH"} | QUIET,
            check=True,
            stdout=subprocess.PIPE,
            text=True,
        )
        return done.stdout

    def answer(self, *command: str | Path) -> Any:
        return json.loads(self.run("mlgo-gym", *command, "--json"))


@pytest.mark.smoke
@pytest.mark.network
@pytest.mark.e2e
def test_a_third_partys_problem_works_everywhere(wheel: Path, tmp_path: Path) -> None:
    theirs = built(ROOT / "examples" / "loaded_size", tmp_path / "dist")
    there = Installation(tmp_path / "there", wheel, theirs)
    reward, size, baseline = json.loads(there.run("python", "-c", EPISODE))
    assert reward == pytest.approx(1 - size / baseline) != 0
    assert baseline > 2000
    problem = ("--problem", "inlining-for-loaded-size")
    policy = ("--policy", "small-callees", "--jobs", "2")
    rolled = there.answer("rollout", *problem, *policy)
    assert rolled["total"]["baseline_loaded_size_bytes"] > 60_000
    assert rolled["total"]["loaded_size_bytes"]["small-callees"] > 60_000
    evaluated = there.answer("evaluate", *problem, *policy)
    assert evaluated["problem"]["problem"] == "InliningForLoadedSize"
    run = tmp_path / "run"
    trained = there.answer("train", "clone", *problem, "--output", run, "--budget", "1m")
    card = json.loads((Path(trained["model"]) / "card.json").read_text())
    assert card["problem"] == "InliningForLoadedSize"
    sample = there.run("python", "-c", "import mlgo_gym as m; print(m.SAMPLE_CORPUS)").strip()
    module = Path(sample) / "frame_stream.c.bc"
    compiled = there.answer("compile", module, "-o", tmp_path / "o", "--model", trained["model"])
    assert compiled["total"]["baseline_loaded_size_bytes"] > 0
    found = there.answer("search", *problem, "--output", tmp_path / "found", "--budget", "1s")
    assert all(each["score"] <= each["default_score"] for each in found)

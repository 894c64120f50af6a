"""``mlgo-gym explain-features``: output, files, bad input."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from mlgo_gym.cli._main import main
from tests.cli.command import check_refused, run

MODELS = Path(__file__).parents[1] / "models"


@pytest.mark.smoke
@pytest.mark.e2e
def test_table_and_plots(small_folder: Path, tmp_path: Path) -> None:
    done = run(
        "explain-features", "--model", MODELS / "inliner", "--corpus", small_folder,
        "--decisions", "50", "--repeats", "1", "--plots", "plots", cwd=tmp_path,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    table = [line for line in done.stdout.splitlines() if re.match("[┏┃┡│├└]", line)]
    assert max(len(line) for line in table) <= 80
    assert "cost_estimate" in done.stdout
    assert "among 50 of " in done.stdout
    assert "No decision changes with: " in done.stdout
    plots = tmp_path / "plots"
    assert {each.name for each in plots.iterdir()} == {"importance.png", "boundary.png"}
    assert all(each.read_bytes().startswith(b"\x89PNG") for each in plots.iterdir())


def test_one_repeat_has_no_deviation(
    small_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    of = ["--model", str(MODELS / "default"), "--corpus", str(small_folder), "--repeats", "1"]
    assert main(["explain-features", *of, "--json"]) == 0
    first = json.loads(capsys.readouterr().out)["features"][0]
    assert first["changed"] > 0
    assert first["deviation"] is None


@pytest.mark.e2e
def test_record(small_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = [
        "explain-features", "--model", str(MODELS / "default"), "--corpus", str(small_folder),
        "--bytes", "1", "--json",
    ]  # fmt: skip
    assert main(command) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["decisions"] == found["recorded_decisions"]
    first, *others = found["features"]
    assert first["feature"] == "inlining_default"
    assert 0 < found["inlined"] < 1
    assert not any(each["changed"] for each in others)
    assert set(found["text"]["text_bytes"]) == {"", "inlining_default"}
    assert main(command) == 0
    assert json.loads(capsys.readouterr().out) == found


def test_a_model_that_looks_at_nothing(
    small_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = str(small_folder)
    model = str(MODELS / "never")
    assert main(["explain-features", "--model", model, "--corpus", folder, "--bytes", "1"]) == 0
    out = capsys.readouterr().out
    assert "No decision changes with: sroa_savings, " in out


def test_a_bad_module_among_good_ones(
    small_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (small_folder / "frame_stream.c.bc").write_bytes(b"no bitcode")
    model = str(MODELS / "default")
    assert main(["explain-features", "--model", model, "--corpus", str(small_folder)]) == 1
    printed = capsys.readouterr()
    assert printed.err == (
        "mlgo-gym: module 'frame_stream.c': LLVM bitcode parsing error\nInvalid bitcode signature\n"
    )
    assert "inlining_default" in printed.out


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (
            "none",
            "model 'none': expected a model directory, a frozen model or the name of a shipped one "
            "(inlining-for-size, inlining-for-size-derived, inlining-for-size-project, "
            "regalloc-eviction), found none",
        ),
        (
            "lowest_density",
            "model 'lowest_density': expected a model for InliningForSize, found one for "
            "RegallocEviction",
        ),
    ],
)
def test_errors(model: str, message: str, tmp_path: Path) -> None:
    shutil.copytree(MODELS / "lowest_density", tmp_path / "lowest_density")
    line = ("explain-features", "--model", model, "--plots", "plots")
    check_refused(message, *line, cwd=tmp_path)
    assert not (tmp_path / "plots").exists()

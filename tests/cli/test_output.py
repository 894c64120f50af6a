"""What is said besides results: on a terminal alone, and never with ``--json``."""

from __future__ import annotations

import json
import math
import shlex
import subprocess

import pytest

from mlgo_gym.cli.show._grid import Grid, narrow_table
from mlgo_gym.cli.show._output import Output
from tests.cli.command import PROGRAM


@pytest.mark.parametrize("where", ["terminal", "pipe", "json"])
def test_remarks_and_what_stands_behind_progress(
    where: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if where != "pipe":
        monkeypatch.setenv("TTY_COMPATIBLE", "1")
        monkeypatch.setenv("COLUMNS", "100")
    output = Output(as_json=where == "json")
    done = 0
    output.besides = lambda: f"{done} of them"
    for item in output.track(range(3), "counting", 3):
        done = item + 1
    output.remark("that was all")
    said = capsys.readouterr()
    assert said.out == ""
    for text in ("counting", "3 of them", "that was all"):
        assert (text in said.err) == (where == "terminal")


@pytest.mark.parametrize("columns", ["0", "1", "-3", "wide"])
def test_a_width_that_is_none(
    columns: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing of what is printed is lost."""
    monkeypatch.setenv("COLUMNS", columns)
    output = Output(as_json=False)
    output.print("one two")
    output.print(Grid(["module", "text"], [["digest.c", "1,920"]]))
    said = capsys.readouterr().out
    assert "one two" in said
    assert "│ digest.c │ 1,920 │" in said


@pytest.mark.parametrize("columns", [20, 30, 40])
def test_a_screen_that_is_too_narrow(
    columns: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """No digit is cut off and no row is without its name."""
    monkeypatch.setenv("COLUMNS", str(columns))
    rows = [["digest.c", "1,920,333", "-8.32 %", "12,345"], ["json.c", "17", "+38.7 %", "2"]]
    headings = ["module", "text, bytes", "change", "decisions"]
    narrow = narrow_table(headings, right=headings[1:])
    for row in rows:
        narrow.add_row(*row)
    Output(as_json=False).print(Grid(headings, rows), narrow)
    said = capsys.readouterr().out
    assert "…" not in said
    for word in (word for row in rows for word in row):
        assert said.count(word) >= 2


@pytest.mark.parametrize(
    "arguments", ["", "models", "models --json", "--version", "--help", "corpus --help"]
)
def test_a_full_disk_under_standard_output(arguments: str) -> None:
    line = f"{shlex.join(map(str, PROGRAM))} {arguments} > /dev/full"
    done = subprocess.run(["/bin/sh", "-c", line], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "mlgo-gym: error: standard output: No space left on device\n"


def test_json_has_no_other_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    Output(as_json=True).json({"a": [math.nan, 1.5], "b": -math.inf})
    assert json.loads(capsys.readouterr().out, parse_constant=pytest.fail) == {
        "a": [None, 1.5],
        "b": None,
    }

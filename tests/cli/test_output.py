"""What is said besides results: on a terminal alone, and never with ``--json``."""

from __future__ import annotations

import pytest

from mlgo_gym.cli.show._grid import Grid
from mlgo_gym.cli.show._output import Output


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

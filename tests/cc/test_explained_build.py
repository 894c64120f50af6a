"""``mlgo-gym explain --build``: what a build compiles, with the lines of its own sources."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.cc.conftest import Driver
from tests.cc.test_traces import SOURCE, database
from tests.cli.command import check_refused, run

pytestmark = pytest.mark.e2e


def test_a_build(driver: Driver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, text in driver.environment.items():
        monkeypatch.setenv(name, text)
    project = tmp_path / "project"
    project.mkdir()
    (project / "f.c").write_text(SOURCE)
    path = database(project, {"f.c": "cc -g -Oz -c f.c -o f.o", "g.c": "cc -c g.c -o g.o"})
    line = ("explain", "--build", path, "--policy", "never", "--json")
    done = run(*line, "--html", "page.html", "--source", project, cwd=tmp_path)
    assert done.returncode == 1
    assert done.stderr.startswith("mlgo-gym: g.o: ")
    (module,) = json.loads(done.stdout)["modules"]
    assert module["module"] == "f.o"
    calls = [
        call
        for function in module["functions"]
        for each in function["decisions"]
        for call in each["site"]["calls"]
    ]
    assert {call["line"] for call in calls} <= {3, 4}
    assert len(calls) >= 2
    page = (tmp_path / "page.html").read_text()
    assert "<td>3</td><td>static int g(int x)" in page
    assert re.search(r"<summary>[fgh], optimised under never<", page)


def test_options_that_exclude_each_other(tmp_path: Path) -> None:
    message = "explain: expected --build without --corpus and --run"
    check_refused(message, "explain", "--build", "x.json", "--run", cwd=tmp_path)

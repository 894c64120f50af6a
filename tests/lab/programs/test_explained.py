"""``mlgo-gym explain --run``: a callee that makes a program slow is named first."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from mlgo_gym.lab.programs._meters import executed_code
from mlgo_gym.lab.programs._program import Programs
from tests.cli.command import run
from tests.conftest import require
from tests.lab.programs.conftest import DESCRIPTION, MakeCorpus

HOT = """
volatile int seen;
static int mix(int x) { return (x ^ x >> 3) * 5 + 1; }
static int report(int x) {
  seen = x + 1; seen = x * 3; seen = x ^ 5; seen = x - 7; seen = x * 11; seen = x + 13;
  seen = x | 17; seen = x & 19; seen = x * 23; seen = x - 29; seen = x + 31; seen = x * 37;
  return seen;
}
int twice(int x) {
  int sum = 0;
  for (int i = 0; i < 100000; i++)
    sum += mix(sum + i);
  seen = sum;
  seen = report(sum);
  return 2 * x;
}
"""


@pytest.mark.e2e
def test_a_slow_callee_is_named_first(corpus: MakeCorpus, tmp_path: Path) -> None:
    """Not what has changed most in size, which runs once."""
    require("valgrind", "valgrind")
    corpus(DESCRIPTION, {"twice.c": HOT})
    line = ("explain", "--corpus", "corpus", "--policy", "always", "--policy", "never", "--run")
    done = run(*line, "--html", "page.html", "--functions", "3", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    _, table = done.stdout.split("functions that execute more")
    names = [each.split()[1] for each in table.splitlines() if each.startswith("│ ")]
    assert names[0] == "mix"
    page = (tmp_path / "page.html").read_text()
    headings = ["Functions that execute more", "Decisions that cost most", "Functions that grew"]
    places = [page.index(f"<h2>{each}</h2>") for each in headings]
    assert places == sorted(places)
    (module,) = json.loads(run(*line, "--json", cwd=tmp_path).stdout)["modules"]
    first, *others = module["functions"]
    assert first["function"] == "mix"
    before, after = first["executed"]
    assert before == 0
    assert after >= 500_000
    (report,) = [each for each in others if each["function"] == "report"]
    assert report["bytes"][1] > first["bytes"][1]
    assert 0 < report["executed"][1] < 100


@pytest.mark.e2e
def test_a_stripped_program(corpus: MakeCorpus) -> None:
    """It has no functions, and so what is executed in them is unknown."""
    require("valgrind", "valgrind")
    with Programs(corpus(DESCRIPTION, {"twice.c": HOT})) as programs:
        workload = programs.workloads["twice"]
        with programs.linked(workload) as program:
            assert "twice" in executed_code(workload, program)
            subprocess.run([require("strip", "binutils"), program.path], check=True)
            assert executed_code(workload, program) == {}

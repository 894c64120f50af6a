"""``mlgo-gym explain``: what differs, where, in which functions; pages, tables, bad input."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.command import run
from tests.conftest import require

pq = pytest.importorskip("pyarrow.parquet")

NEVER = Path(__file__).parents[1] / "models" / "never"
MODULES = ("--module", "json_read.c", "--module", "digest.c")


def test_a_policy_beside_llvm(tmp_path: Path) -> None:
    files = ("--html", "page.html", "--decisions", "decisions.parquet")
    done = run("explain", "--policy", "never", *MODULES, "--functions", "2", *files, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    for text in (
        "where ways part",
        "functions that grew",
        "functions that shrank",
        "│ is_prime at call 0 in next_prime, digest.c │ inline │ leave │",
    ):
        assert text in done.stdout
    assert max(len(line) for line in done.stdout.splitlines()) <= 80
    page = (tmp_path / "page.html").read_text()
    assert "<h2>Functions that grew</h2>" in page
    rows = pq.read_table(tmp_path / "decisions.parquet").to_pylist()
    assert {row["policy"] for row in rows} == {"LLVM", "never"}


def test_two_policies(tmp_path: Path) -> None:
    line = ("explain", "--model", NEVER, "--policy", "always", *MODULES, "--json")
    done = run(*line, cwd=tmp_path)
    assert done.returncode == 0
    record = json.loads(done.stdout)
    assert record["policies"] == ["never", "always"]
    assert [each["module"] for each in record["modules"]] == ["digest.c", "json_read.c"]
    for module in record["modules"]:
        assert module["first"]["answers"] == [0, 1]
        difference = module["text_bytes"][1] - module["text_bytes"][0]
        sizes = [each["bytes"] for each in module["functions"]]
        assert sum((after or 0) - (before or 0) for before, after in sizes) == difference
    assert record["errors"] == []


def test_nothing_differs(tmp_path: Path) -> None:
    done = run("explain", "--policy", "default", *MODULES, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "ways part" not in done.stdout
    assert "0.00 %" in done.stdout


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            ("--policy", "never", "--module", "no.c"),
            "corpus: expected a module 'no.c', found none among 22",
        ),
        (
            ("--policy", "never", "--policy", "always", "--policy", "default"),
            "expected one or two models or policies, found 3",
        ),
    ],
)
def test_bad_input(options: tuple[str, ...], message: str, tmp_path: Path) -> None:
    done = run("explain", *options, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (1, f"mlgo-gym: error: {message}\n")


@pytest.mark.e2e
def test_what_is_executed(tmp_path: Path) -> None:
    require("clang-22", "clang-22")
    require("valgrind", "valgrind")
    line = ("explain", "--policy", "never", "--module", "json_read.c", "--run")
    done = run(*line, "--decisions", "decisions.parquet", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "functions that execute more" in done.stdout
    assert max(len(line) for line in done.stdout.splitlines()) <= 80
    rows = pq.read_table(tmp_path / "decisions.parquet").to_pylist()
    assert sum(row["executed"] or 0 for row in rows if row["policy"] == "LLVM") > 1_000_000
    assert {row["executed"] for row in rows if row["policy"] == "never"} == {0}

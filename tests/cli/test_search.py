"""``mlgo-gym search`` in next to no time: its table, its record, its traces, what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mlgo_gym.cli._search import _grid
from mlgo_gym.cli.show._grid import Cell
from mlgo_gym.corpus._corpus import Corpus
from mlgo_gym.search._corpus_search import ModuleSearch
from tests.cli.command import run
from tests.cli.test_evaluate import copied

NEVER = Path(__file__).parents[1] / "models" / "never"


def _texts(row: list[Cell | str]) -> list[str]:
    return [each if isinstance(each, str) else each.text for each in row]


def test_the_table_of_a_search() -> None:
    grid = _grid([ModuleSearch("a.c", 1200, 900, 40, 1.25), ModuleSearch("b.c", 800, 800, 2, 60.0)])
    assert list(grid.headings) == [
        "module", "default", "found", "change", "compilations", "seconds",
    ]  # fmt: skip
    assert [_texts(list(row)) for row in (*grid.rows, grid.footer)] == [
        ["a.c", "1,200", "900", "-25.0 %", "40", "1"],
        ["b.c", "800", "800", "0.00 %", "2", "60"],
        ["total", "2,000", "1,700", "-15.0 %", "42", "61"],
    ]


@pytest.fixture
def one_of_two(sample: Corpus, tmp_path: Path) -> Path:
    """A corpus whose first module is broken."""
    folder = copied(sample, ("json_write.c", "frame_stream.c"), tmp_path / "corpus")
    (folder / "json_write.c.bc").write_bytes(b"no bitcode")
    return folder


def test_a_search_beside_a_broken_module(one_of_two: Path, tmp_path: Path) -> None:
    command = ("search", "--corpus", one_of_two, "--output", "found", "--budget", "0.05s")
    done = run(*command, "--model", NEVER, "--json", cwd=tmp_path)
    message = "module 'json_write.c': LLVM bitcode parsing error\nInvalid bitcode signature"
    assert (done.returncode, done.stderr) == (1, f"mlgo-gym: {message}\n")
    broken, found = json.loads(done.stdout)
    assert broken == {
        "module": "json_write.c", "default_size_bytes": 0, "size_bytes": 0, "compilations": 0,
        "spent_s": 0.0, "error": message,
    }  # fmt: skip
    assert (found["module"], found["error"]) == ("frame_stream.c", None)
    assert 0 < found["size_bytes"] <= found["default_size_bytes"]
    traces = sorted(path.name for path in (tmp_path / "found").glob("*.trace"))
    assert traces == ["frame_stream.c.trace"]
    table = run(*command, cwd=tmp_path).stdout
    assert [f"{found['default_size_bytes']:,}" in line for line in table.splitlines()].count(
        True
    ) == 2  # the module's line, and the total
    assert "json_write.c" not in table


def test_another_problem_is_not_searched(one_of_two: Path, tmp_path: Path) -> None:
    done = run(
        "search", "--corpus", one_of_two, "--output", "found", "--problem", "regalloc-eviction",
        cwd=tmp_path,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (
        1,
        "mlgo-gym: error: search: expected InliningForSize or a kind of it, found "
        "RegallocEviction\n",
    )
    assert not (tmp_path / "found").exists()

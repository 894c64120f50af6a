"""``mlgo-gym search`` in next to no time: its table, its record, its traces, what it refuses."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from mlgo_gym.cli._search import _grid
from mlgo_gym.cli.show._grid import Cell
from mlgo_gym.corpus._corpus import Corpus
from mlgo_gym.search._corpus_search import ModuleSearch
from tests.cli.command import check_refused, run
from tests.cli.test_evaluate import copied
from tests.lab.programs.conftest import DESCRIPTION, MakeCorpus
from tests.search.test_rewards import LOOP

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


@pytest.mark.parametrize(
    ("reward", "title"), [("instructions", "instructions"), ("text:1.0,cost:0.5", "mix")]
)
def test_the_table_of_a_search_by_a_reward(reward: str, title: str) -> None:
    scores = {"reward": reward, "default_score": 4000.0, "score": 3900.0}
    found = [ModuleSearch("a.c", 1200, 1500, 40, 1.25, **scores)]  # type: ignore[arg-type]
    grid = _grid(
        [*found, ModuleSearch("src/long_name.c", 1234567, 1234567, 2, 60.0, reward=reward)]
    )
    assert list(grid.headings) == ["module", "default", "found", "text", title, "seconds"]
    assert [_texts(list(row)) for row in (*grid.rows, grid.footer)] == [
        ["a.c", "1,200", "1,500", "+25.0 %", "-2.50 %", "1"],
        ["src/long_name.c", "1,234,567", "1,234,567", "0.00 %", "0.00 %", "60"],
        ["total", "1,235,767", "1,236,067", "+0.02 %", "", "61"],
    ]
    console = Console(width=80, file=io.StringIO(), legacy_windows=False)
    with console.capture() as shown:
        console.print(grid)
    lines = shown.get().splitlines()
    assert max(map(len, lines)) <= 80
    assert len(lines) == 8  # no name is broken


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
        "spent_s": 0.0, "error": message, "reward": None, "default_score": 0.0, "score": 0.0,
        "wrong": 0, "start": "",
    }  # fmt: skip
    assert (found["module"], found["error"]) == ("frame_stream.c", None)
    assert found["start"] in ("default", "given")
    assert 0 < found["size_bytes"] <= found["default_size_bytes"]
    traces = sorted(path.name for path in (tmp_path / "found").glob("*.trace"))
    assert traces == ["frame_stream.c.trace"]
    table = run(*command, cwd=tmp_path).stdout
    assert [f"{found['default_size_bytes']:,}" in line for line in table.splitlines()].count(
        True
    ) == 2  # the module's line, and the total
    assert "json_write.c" not in table
    last = table.splitlines()[-1]  # of the earlier search, whose record says it
    assert last.startswith("The best answers went out from: ")
    assert last.endswith((" the model 1.", " LLVM's default 1."))
    (one_of_two / "frame_stream.c.bc").write_bytes(b"no bitcode")
    none = run(*command[:-2], "--budget", "0.06s", cwd=tmp_path)
    assert (none.returncode, none.stdout, none.stderr.count("Invalid bitcode")) == (1, "", 2)


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


@pytest.mark.e2e
def test_a_search_by_what_programs_take(corpus: MakeCorpus, tmp_path: Path) -> None:
    unreached = LOOP.replace("twice", "thrice").replace("mix", "other")
    made = corpus(DESCRIPTION, {"twice.c": LOOP, "thrice.c": unreached})
    command = (
        "search", "--corpus", made.folder, "--output", "found", "--budget", "1s", "--reward",
        "instructions:0.5", "--most-text", "1.0",
    )  # fmt: skip
    done = run(*command, "--json", cwd=tmp_path)
    message = "module 'thrice.c': expected a workload that reaches it, found none of twice"
    assert (done.returncode, done.stderr) == (1, f"mlgo-gym: {message}\n")
    found, other = json.loads(done.stdout)
    assert (found["module"], found["error"], found["wrong"]) == ("twice.c", None, 0)
    assert found["reward"] == other["reward"] == "instructions"
    assert 0 < found["score"] <= found["default_score"]
    assert other["error"] == message
    record = tmp_path / "found" / "twice.c.search.json"
    record.write_text(json.dumps(json.loads(record.read_text()) | {"wrong": 3, "compilations": 9}))
    shown = run(*command, cwd=tmp_path).stdout
    assert "instructions" in shown.splitlines()[1]
    assert "Passed over, since a program went wrong: 3 of 9 compilations." in shown


@pytest.mark.parametrize("reward", ["instructions", "linked:0.5,cost:0.5"])
def test_a_build_has_no_workloads(reward: str, tmp_path: Path) -> None:
    options = ("--build", "x.json", "--output", "found", "--reward", reward)
    done = run("search", *options, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (
        1,
        "mlgo-gym: error: search: expected --build with a reward that runs no programs, found "
        f"{reward!r}: a build has no workloads\n",
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            ("--reward", "speed"),
            "reward: expected measures out of text, linked, linked_text_gc, linked_text_icf, "
            "box, box-time, cost, estimate, instructions, each "
            "once, several with a weight above 0 as in 'text:0.5,instructions:0.5', found 'speed'",
        ),
        (("--most-text", "1"), "most_text: expected a reward other than text, found None"),
        (
            ("--reward", "cost", "--most-text", "0.5"),
            "most_text: expected a finite number of at least 1, found 0.5",
        ),
    ],
)
def test_rewards_that_are_none(
    small_folder: Path, tmp_path: Path, options: tuple[str, ...], message: str
) -> None:
    check_refused(
        message, "search", "--corpus", small_folder, "--output", "found", *options, cwd=tmp_path
    )


def test_a_limit_of_text_that_is_no_number(small_folder: Path, tmp_path: Path) -> None:
    command = ("search", "--corpus", small_folder, "--output", "found", "--reward", "cost")
    done = run(*command, "--most-text", "0", cwd=tmp_path)
    assert done.returncode == 2
    assert "argument --most-text: expected a number above 0, found '0'" in done.stderr

"""``mlgo-gym corpus`` as users run it: splits, functions, figures."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mlgo_gym.cli._main import main
from mlgo_gym.cli.corpus._split import _grid
from mlgo_gym.cli.show._grid import Cell
from mlgo_gym.corpus._corpus import Corpus
from tests.cli.command import run
from tests.curation.make import make_corpus, program


@pytest.fixture
def inputs(tmp_path: Path) -> list[str]:
    data = {"a": ("x",), "b": ("x", "y"), "c": ("z",), "d": ("w",)}
    for name, tags in data.items():
        make_corpus(tmp_path / name, {"m": program(*tags, header=1)})
    return list(data)


def corpora(folders: list[str]) -> list[str]:
    return [argument for folder in folders for argument in ("--corpus", folder)]


def test_split(inputs: list[str], tmp_path: Path) -> None:
    done = run("corpus", "split", *corpora(inputs), "--output", "out", "--jobs", "2", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert max(len(line) for line in done.stdout.splitlines() if line[0] in "┏┃┡│├└") <= 80
    assert "near-duplicates, kept together: a, b" in done.stdout
    sides = [Corpus.load(tmp_path / "out" / side) for side in ("train", "test")]
    assert sorted(sides[0].names + sides[1].names) == ["a/m", "b/m", "c/m", "d/m"]


def test_split_for_machines(inputs: list[str], tmp_path: Path) -> None:
    arguments = ["corpus", "split", *corpora(inputs), "--seed", "4", "--json"]
    results = []
    for name in ("one", "two"):
        done = run(*arguments, "--output", name, cwd=tmp_path)
        assert done.stderr == ""
        results.append(json.loads(done.stdout))
    assert results[0] == results[1]
    assert results[0]["merged_groups"] == [["a", "b"]]
    assert results[0]["near_duplicates"] == [{"first": "a/m", "second": "b/m", "similarity": 1.0}]
    assert results[0]["own_overlap"] == 0
    assert results[0]["overlap"] > 0
    test = Corpus.load(tmp_path / "one/test")
    assert results[0]["test"]["modules"] == list(test.names)


def test_split_with_a_bad_module(inputs: list[str], tmp_path: Path) -> None:
    (tmp_path / "c/m.bc").write_bytes(b"BC\xc0\xde")
    done = run("corpus", "split", *corpora(inputs), "--output", "out", cwd=tmp_path)
    assert done.returncode == 1
    assert done.stderr == (
        "mlgo-gym: c/m: module 'm': LLVM bitcode parsing error\nExpected a single module\n"
    )
    assert not (tmp_path / "out/train/c").exists()
    assert not (tmp_path / "out/test/c").exists()


def test_split_functions(tmp_path: Path) -> None:
    make_corpus(tmp_path / "in", {"m": program("m"), "n": program("n")})
    done = run("corpus", "split-functions", "--corpus", "in", "--output", "out", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert " ".join(done.stdout.split()).endswith("out of 2 modules, in out")
    names = Corpus.load(tmp_path / "out").names
    assert names == ("m/m_0", "m/m_1", "n/n_0", "n/n_1")
    done = run(
        "corpus", "split-functions", "--corpus", "in", "--output", "out", "--json", cwd=tmp_path
    )
    result = json.loads(done.stdout)
    assert (result["modules"], result["failures"]) == (list(names), {})


def test_stats_of_code(tmp_path: Path) -> None:
    make_corpus(tmp_path / "in", {"m.c": program("m", header=3), "n.cc": program("n")})
    done = run("corpus", "stats", "--corpus", "in", "--json", cwd=tmp_path)
    result = json.loads(done.stdout)
    total = result["total"]
    assert (total["functions"], total["header_functions"]) == (7, 3)
    assert (total["instructions"], total["header_instructions"]) == (7 * 16, 3 * 16)
    assert [each["module"] for each in result["modules"]] == ["m.c", "n.cc"]
    assert [each["profile"] for each in result["profiles"]] == ["none"]
    table = run("corpus", "stats", "--corpus", "in", cwd=tmp_path).stdout
    assert max(len(line) for line in table.splitlines()) <= 80
    assert "profile" not in table


def test_stats_of_a_module_that_fails(tmp_path: Path) -> None:
    """Sizes and decisions are of the modules that were compiled, which are counted."""
    folder = make_corpus(tmp_path / "in", {"m.c": program("m"), "n.cc": program("n")})
    whole = run("corpus", "stats", "--corpus", "in", cwd=tmp_path).stdout
    assert "compiled" not in whole
    (folder / "n.cc.cmd").write_bytes(b"-cc1\0-triple\0none")
    (folder / "n.cc.bc").write_bytes(b"BC")
    done = run("corpus", "stats", "--corpus", "in", cwd=tmp_path)
    assert done.returncode == 1
    assert "compiled" in done.stdout
    assert "LLVM's" in done.stdout
    done = run("corpus", "stats", "--corpus", "in", "--json", cwd=tmp_path)
    total = json.loads(done.stdout)["total"]
    assert (total["modules"], total["compiled_modules"]) == (2, 1)


def test_stats_of_profiles(tmp_path: Path) -> None:
    folder = make_corpus(tmp_path / "in", {"m.c": program("m"), "n.c": program("n")})
    command = ["-cc1", "-O2", "-fprofile-instrument-use-path=x.profdata"]
    (folder / "n.c.cmd").write_bytes("\0".join(command).encode())
    done = run("corpus", "stats", "--corpus", "in", cwd=tmp_path)
    assert max(len(line) for line in done.stdout.splitlines()) <= 80
    assert "named in the command" in done.stdout
    done = run("corpus", "stats", "--corpus", "in", "--json", cwd=tmp_path)
    result = json.loads(done.stdout)
    named = "named in the command, not in the bitcode"
    assert [(each["profile"], each["modules"]) for each in result["profiles"]] == [
        (named, 1),
        ("none", 1),
    ]
    assert [each["profile_path"] for each in result["modules"]] == [None, "x.profdata"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["split", "--corpus", "a", "--output", "a/out"],
            "--output: expected a place outside --corpus, found 'a/out'",
        ),
        (
            ["split", "--corpus", "a", "--output", "out", "--test-fraction", "1"],
            "test_fraction: expected a number above 0 and below 1, found 1.0",
        ),
        (
            ["split", "--corpus", "a", "--output", "out"],
            "corpora: expected at least two packages that are no near-duplicates, found 1; "
            "split it by module",
        ),
        (
            ["split-functions", "--corpus", "none", "--output", "out"],
            "corpus 'none': expected corpus_description.json in it or in folders in it, "
            "found none; 'mlgo-gym corpus build' makes a corpus",
        ),
        (
            ["split-functions", "--corpus", "a", "--output", "a/m.bc"],
            "cannot write 'a/m.bc': File exists",
        ),
    ],
)
@pytest.mark.usefixtures("inputs")
def test_bad_input(tmp_path: Path, arguments: list[str], message: str) -> None:
    done = run("corpus", *arguments, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (1, f"mlgo-gym: error: {message}\n")


def test_functions_beside_a_broken_module(tmp_path: Path) -> None:
    make_corpus(tmp_path / "a", {"good": program("x"), "bad": b"BC\xc0\xde"})
    command = ("corpus", "split-functions", "--corpus", "a", "--output", "out")
    done = run(*command, "--json", cwd=tmp_path)
    assert done.returncode == 1
    found = json.loads(done.stdout)
    assert list(found["failures"]) == ["bad"]
    assert done.stderr == f"mlgo-gym: {found['failures']['bad']}\n"
    assert found["instructions"] == 4
    assert sorted(found["modules"]) == sorted(Corpus.load(tmp_path / "out").names)
    assert (
        "2 functions with 4 instructions, out of 1 modules, in out"
        in run(*command, cwd=tmp_path).stdout
    )


def test_the_sides_of_a_split() -> None:
    sides = {
        "train": {"packages": ["a", "b"], "modules": ["a/x", "a/y", "b/z"], "bitcode_bytes": 3000},
        "test": {"packages": ["c"], "modules": ["c/w"], "bitcode_bytes": 1000},
    }
    grid = _grid(sides)
    rows = [[cell.text if isinstance(cell, Cell) else cell for cell in row] for row in grid.rows]
    assert rows == [
        ["train", "2", "3", "3,000", "75.0%"],
        ["test", "1", "1", "1,000", "25.0%"],
    ]


def test_objects_are_compared_with_what_clang_makes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["corpus", "verify", "--objects", str(tmp_path)]) == 1
    expected = "--objects: expected --clang with it, whose code is compared with them"
    assert capsys.readouterr().err == f"mlgo-gym: error: {expected}\n"

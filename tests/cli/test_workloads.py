"""``mlgo-gym workload`` and ``mlgo-gym measure``, on the sample and on a corpus of one's own."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.cli.command import run
from tests.lab.programs.conftest import ADDRESS, CALLS, DESCRIPTION, OUTPUT, MakeCorpus, sha256

NEVER = Path(__file__).parents[1] / "models" / "never"


def test_the_sample_is_listed(tmp_path: Path) -> None:
    done = run("workload", "list", cwd=tmp_path)
    assert done.returncode == 0
    assert "sample/json        2  reads a document of made-up records" in done.stdout
    (found,) = json.loads(run("workload", "list", "--json", cwd=tmp_path).stdout)
    assert (found["workload"], found["modules"]) == ("json", ["json_read.c", "json_write.c"])


def test_a_program_is_run(corpus: MakeCorpus, tmp_path: Path) -> None:
    folder = corpus(DESCRIPTION, {"twice.c": CALLS}).folder
    line = ("workload", "run", "--corpus", folder, "--workload", "twice")
    assert run(*line, cwd=tmp_path).stdout == "42\n"
    plain, never = (
        json.loads(run(*line, *more, "--json", cwd=tmp_path).stdout)
        for more in ((), ("--policy", "never", "--program", "made"))
    )
    assert (plain["compiled_by"], never["compiled_by"]) == ("LLVM", "never")
    assert plain["text_bytes"] != never["text_bytes"]
    assert (tmp_path / "made").stat().st_mode & 0o111


def test_a_check(corpus: MakeCorpus, tmp_path: Path) -> None:
    folder = corpus(DESCRIPTION).folder
    done = run("workload", "check", "--corpus", folder, cwd=tmp_path)
    assert done.returncode == 0
    assert re.search(r"│ +(equal|[+-]\d+) │       1 │        1 │", done.stdout)
    description = folder / "workloads" / "workload.toml"
    text = description.read_text()
    description.write_text(text.replace(sha256(OUTPUT), sha256("")))
    done = run("workload", "check", "--corpus", folder, cwd=tmp_path)
    assert done.returncode == 1
    expected = f"expected standard output of SHA-256 {sha256('')}, found {sha256(OUTPUT)}"
    assert f"workload 'twice': {expected}" in done.stderr


def test_programs_are_measured(corpus: MakeCorpus, tmp_path: Path) -> None:
    folder = corpus(DESCRIPTION, {"twice.c": CALLS}).folder
    meters = ("size", "instructions", "cost", "accesses", "seconds")
    asked = [word for meter in meters for word in ("--meter", meter)]
    line: list[str | Path] = [
        "measure",
        "--corpus",
        folder,
        "--policy",
        "never",
        "--policy",
        "default",
        *asked,
    ]
    done = run(*line, "--plot", "plot.png", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["meters"]["cost"] == "estimated cycles"
    assert found["policies"]["never"]["instructions"]["change"] > 0
    for meter in meters:
        assert found["policies"]["default"][meter]["change"] == 0
    (program,) = found["programs"]
    readings = program["readings"]
    assert readings["LLVM"]["cost"]["value"] > readings["LLVM"]["instructions"]["value"] > 1000
    details = readings["never"]["accesses"]["details"]
    assert readings["never"]["accesses"]["value"] == details["loads"] + details["stores"]
    assert len(readings["never"]["seconds"]["samples"]) == 20
    assert (tmp_path / "plot.png").stat().st_size > 1000
    done = run(*line[:-6], cwd=tmp_path)
    assert "Geometric means against LLVM's default" in done.stdout
    assert max(map(len, done.stdout.splitlines()[:5])) <= 80


def test_a_program_that_does_something_else(corpus: MakeCorpus, tmp_path: Path) -> None:
    """It is an error under that policy, and the others are measured all the same."""
    folder = corpus(DESCRIPTION, {"twice.c": ADDRESS}).folder
    line = ("measure", "--corpus", folder, "--policy", "never")
    done = run(*line, cwd=tmp_path)
    assert done.returncode == 1
    assert "workload 'twice': expected standard output of SHA-256" in done.stderr
    assert "No program was measured under every policy." in done.stdout


def test_an_evaluation_with_programs(corpus: MakeCorpus, tmp_path: Path) -> None:
    folder = corpus(DESCRIPTION, {"twice.c": CALLS}).folder
    line = ("evaluate", "--corpus", folder, "--model", NEVER, "--run")
    done = run(*line, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "│ corpus/twice │ " in done.stdout
    record = json.loads(run(*line, "--json", cwd=tmp_path).stdout)
    assert record["run"]["policies"]["never"]["instructions"]["change"] > 0


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (
            ("measure", "--policy", "never", "--meter", "size", "--plot", "a.png"),
            "--plot: expected two meters or more, found size",
        ),
        (("measure",), "expected --model or --policy, found neither"),
        (
            ("measure", "--policy", "never", "--workload", "none"),
            "workload 'none': expected a description in ",
        ),
        (
            ("workload", "run", "--workload", "x", "--corpus", "a", "--corpus", "b"),
            "corpus 'a': expected corpus_description.json in it or in folders in it, found none",
        ),
    ],
)
def test_bad_input(words: tuple[str, ...], expected: str, tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    done = run(*words, cwd=tmp_path)
    assert done.returncode == 1
    assert f"mlgo-gym: error: {expected}" in done.stderr


def test_corpora_without_workloads(small_folder: Path, tmp_path: Path) -> None:
    for words in (("workload", "list"), ("measure", "--policy", "never")):
        done = run(*words, "--corpus", small_folder, cwd=tmp_path)
        assert done.returncode == 1
        expected = f"workloads: expected a description in {small_folder / 'workloads'}, found none"
        assert done.stderr == f"mlgo-gym: error: {expected}\n"

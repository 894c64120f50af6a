"""``mlgo-gym workload`` and ``mlgo-gym measure``, on the sample and on a corpus of one's own."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.cli.command import run
from tests.folders import tree
from tests.lab.programs.conftest import (
    ADDRESS,
    CALLS,
    DESCRIPTION,
    MAIN,
    OUTPUT,
    MakeCorpus,
    sha256,
)

ECHO = """#include <stdio.h>
int twice(int);
int main(int count, char **words) {
  char text[9];
  printf("%s %s %d\\n", words[count - 1], fgets(text, 9, stdin), twice(21));
  return 3;
}
"""
CLOCK = """#include <stdio.h>
#include <time.h>
int main(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  printf("%ld\\n", now.tv_nsec);
  return 0;
}
"""
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
        "--layouts",
        "4",
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
    assert readings["never"]["seconds"]["layouts"] == 4
    assert len(readings["never"]["seconds"]["samples"]) == 4
    assert program["readings"]["default"] == program["readings"]["LLVM"]
    assert (tmp_path / "plot.png").stat().st_size > 1000
    done = run(*line[:-6], "--meter", "seconds", "--layouts", "1", cwd=tmp_path)
    assert "Seconds of the CPU are medians; the same program again differs by" in done.stdout
    assert "Geometric means against LLVM's default" in done.stdout
    assert max(map(len, done.stdout.splitlines()[:5])) <= 80


def test_models_of_two_problems(corpus: MakeCorpus, tmp_path: Path) -> None:
    """Each alone, and both in the same compilations."""
    folder = corpus(DESCRIPTION, {"twice.c": CALLS}).folder
    line = ("measure", "--corpus", folder, "--model", NEVER, "--model", "regalloc-eviction")
    done = run(*line, "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    changes = json.loads(done.stdout)["policies"]
    assert list(changes) == ["never", "regalloc-eviction", "never + regalloc-eviction"]
    never, eviction, both = (each["size"]["change"] for each in changes.values())
    assert never == both < eviction == 0


def test_a_new_workload(corpus: MakeCorpus, tmp_path: Path) -> None:
    folder = corpus(DESCRIPTION, {"twice.c": CALLS}).folder
    (tmp_path / "drive.c").write_text(ECHO)
    (tmp_path / "a file").write_text("given")
    line = ("workload", "new", "echo", "--corpus", folder, "--source", "drive.c")
    more = ("--stdin", "a file", "--argument", 'a "word"', "--exit-status", "3")
    done = run(*line, *more, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith('a "word" given 42\n0.0')
    assert f"mlgo-gym workload check --corpus {folder} --workload echo\n" in done.stdout
    assert run("workload", "check", "--corpus", folder, cwd=tmp_path).returncode == 0
    done = run("workload", "run", "--corpus", folder, "--workload", "echo", "--json", cwd=tmp_path)
    assert json.loads(done.stdout)["stdout_sha256"] == sha256('a "word" given 42\n')


NEW = {
    "taken": (MAIN, "twice", "expected a name that is not taken, found that of another workload"),
    "a name": (MAIN, "Echo", "expected lower-case letters, digits, '-', found 'Echo'"),
    "a file": (MAIN.replace("42", "43"), "echo", "expected a name that is not taken, found another "
               "file of that name among the corpus's workloads"),
    "a status": (MAIN.replace("return 0", "return 3"), "echo", "expected exit status 0, found 3"),
    "time": (CLOCK, "echo", "expected the same standard output, found SHA-256"),
    "code": (MAIN, "echo", "expected the same standard output, found SHA-256"),
    "no code": ("int main(", "echo", "drive.c: clang exited with 1"),
}  # fmt: skip


@pytest.mark.parametrize("case", NEW)
def test_a_workload_that_cannot_be(corpus: MakeCorpus, tmp_path: Path, case: str) -> None:
    """Nothing of it stays behind."""
    source, name, expected = NEW[case]
    folder = corpus(DESCRIPTION, {"twice.c": ADDRESS if case == "code" else CALLS}).folder
    before = tree(folder)
    path = tmp_path / ("main.c" if case == "a file" else "drive.c")
    path.write_text(source + "/* another */" * (case == "a file"))
    line = ("workload", "new", name, "--corpus", folder, "--source", path)
    done = run(*line, cwd=tmp_path)
    assert done.returncode == 1
    assert expected in done.stderr
    assert tree(folder) == before


def test_a_run_that_differs_is_shown(corpus: MakeCorpus, tmp_path: Path) -> None:
    folder = corpus(DESCRIPTION.replace(sha256(OUTPUT), sha256(""))).folder
    done = run("workload", "run", "--corpus", folder, "--workload", "twice", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (1, "42\n")
    assert f"found {sha256(OUTPUT)}" in done.stderr


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

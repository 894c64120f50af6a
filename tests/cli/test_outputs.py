"""Files that commands write: every one is checked before the work, whatever the command."""

from __future__ import annotations

import argparse
import itertools
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from mlgo_gym.cli._main import CommandParser
from mlgo_gym.cli._writing import OutputFile
from tests.cli.command import PROGRAM, check_refused, run
from tests.cli.test_help import COMMANDS

_NAME = "same.png"


def _name(action: argparse.Action) -> str:
    return max(action.option_strings, key=len, default=action.dest)


def _kind(action: argparse.Action) -> OutputFile:
    assert isinstance(action.type, OutputFile)
    return action.type


def _outputs(command: CommandParser) -> list[argparse.Action]:
    command.load()
    return [each for each in command._actions if isinstance(each.type, OutputFile)]


EVERY = [(name, each) for name, command in COMMANDS.items() for each in _outputs(command)]
OUTPUTS = [(name, each) for name, each in EVERY if not _kind(each).is_folder]
PAIRS = [
    (name, *pair)
    for name, command in COMMANDS.items()
    for pair in itertools.combinations(_outputs(command), 2)
    if name != "mlgo-gym dataset export"  # which takes one of them
]
OF_CORPORA = [
    (name, each)
    for name, each in EVERY
    if any(a.dest == "corpus" for a in COMMANDS[name]._actions)
    and (name, each.dest) != ("mlgo-gym compile", "output")  # a folder then, see below
]
FILES_OF_CORPORA = [(name, each) for name, each in OF_CORPORA if not _kind(each).is_folder]
FOLDERS_OF_CORPORA = [(name, each) for name, each in OF_CORPORA if _kind(each).is_folder]


def _words(name: str, *outputs: argparse.Action) -> list[str]:
    """The command's example without its own outputs."""
    *_, last = COMMANDS[name].format_help().splitlines()
    words = shlex.split(last.removeprefix("example: mlgo-gym "))
    for each in _outputs(COMMANDS[name]):
        for option in each.option_strings:
            if option in words:
                place = words.index(option)
                del words[place : place + 2]
    for each in _outputs(COMMANDS[name]):
        if each.required and each not in outputs:
            words += [each.option_strings[-1], "another.o"]
    return words


def _check(
    name: str, outputs: Sequence[argparse.Action], message: str, path: str, *more: str
) -> None:
    given = [word for each in outputs for word in (_name(each), path)]
    done = run(*_words(name, *outputs), *given, *more, cwd=Path())
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"mlgo-gym: error: {_name(outputs[-1])}: expected {message}\n"


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_all_files_that_are_written_are_known() -> None:
    for name, command in COMMANDS.items():
        for each in command._actions:
            is_path = each.metavar in {"FILE", "OUT", "DIR"}
            writes = each.dest in {"output", "into"} or re.match(
                r"(also )?(write|keep) |where |folder for ", each.help or ""
            )
            is_known = isinstance(each.type, OutputFile)
            assert is_known or not (is_path and writes), (name, each.dest)


@pytest.mark.parametrize(("name", "option"), OUTPUTS)
def test_a_folder(name: str, option: argparse.Action) -> None:
    Path(_NAME).mkdir()
    _check(name, [option], f"a file, found the folder {_NAME!r}", _NAME)
    assert not list(Path(_NAME).iterdir())


@pytest.mark.parametrize(
    ("name", "option"), [(n, o) for n, o in OUTPUTS if not _kind(o).may_lack_folder]
)
def test_no_folder(name: str, option: argparse.Action) -> None:
    _check(name, [option], "an existing folder, found 'none'", f"none/{_NAME}")


@pytest.mark.parametrize(("name", "option"), [(n, o) for n, o in OUTPUTS if _kind(o).endings])
def test_an_unknown_ending(name: str, option: argparse.Action) -> None:
    _check(name, [option], "a file name ending in .png, .svg, .pdf, found 'x.xyz'", "x.xyz")


@pytest.mark.parametrize(("name", "first", "second"), PAIRS)
def test_two_outputs_in_one_file(
    name: str, first: argparse.Action, second: argparse.Action
) -> None:
    message = f"another file than {_name(first)}, found {_NAME!r}"
    _check(name, [first, second], message, _NAME)
    assert not Path(_NAME).exists()


@pytest.mark.parametrize(("name", "option"), EVERY)
def test_a_place_that_cannot_be_written(name: str, option: argparse.Action) -> None:
    done = run(*_words(name, option), _name(option), f"/proc/{_NAME}", cwd=Path())
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"mlgo-gym: error: cannot write '/proc/{_NAME}': ")


@pytest.mark.parametrize(("name", "option"), OF_CORPORA)
def test_in_an_input(name: str, option: argparse.Action) -> None:
    path = Path("corpus", _NAME)
    path.parent.mkdir()
    _check(
        name, [option], f"a place outside --corpus, found '{path}'", str(path), "--corpus", "corpus"
    )
    assert not path.exists()


@pytest.mark.parametrize("kind", ["symbolic link", "hard link", "linked folder"])
def test_a_file_that_an_input_has_by_another_name(kind: str) -> None:
    Path("corpus").mkdir()
    Path("elsewhere").mkdir()
    page = Path("elsewhere", "page.html")
    page.write_text("a module")
    if kind == "symbolic link":
        Path("corpus", "a.bc").symlink_to(page.resolve())
    elif kind == "hard link":
        Path("corpus", "a.bc").hardlink_to(page)
    else:
        Path("corpus", "more").symlink_to(Path("elsewhere").resolve())
        Path("elsewhere", "round").symlink_to(Path("corpus").resolve())
    words = ("evaluate", "--policy", "never", "--corpus", "corpus", "--html", page)
    done = run(*words, cwd=Path())
    message = f"--html: expected a place outside --corpus, found '{page}'"
    assert (done.returncode, done.stderr) == (1, f"mlgo-gym: error: {message}\n")
    assert page.read_text() == "a module"


@pytest.mark.parametrize(("name", "option"), FILES_OF_CORPORA)
def test_an_input(name: str, option: argparse.Action) -> None:
    Path("module.bc").touch()
    Path(_NAME).symlink_to("module.bc")
    more = ("--corpus", "module.bc")
    _check(name, [option], f"another file than --corpus, found {_NAME!r}", _NAME, *more)


@pytest.mark.parametrize(("name", "option"), FOLDERS_OF_CORPORA)
def test_a_folder_that_is_an_input(name: str, option: argparse.Action) -> None:
    Path("corpus").mkdir()
    Path("link").symlink_to("corpus")
    Path("corpus", "x").touch()
    _check(
        name, [option], "another folder than --corpus, found 'link'", "link", "--corpus", "corpus"
    )
    assert Path("corpus", "x").exists()


@pytest.mark.parametrize(
    "words",
    [
        "distill --model inlining-for-size --output mine",
        "bench fetch tiers-v1 --output mine",
        "box record --workload json --output mine",
    ],
)
def test_a_folder_of_another_kind_is_not_replaced(words: str) -> None:
    Path("mine").mkdir()
    Path("mine", "thesis").touch()
    done = run(*words.split(), cwd=Path.cwd())
    assert done.returncode == 1
    assert "expected an empty folder or one with " in done.stderr
    assert Path("mine", "thesis").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("compile x.bc -o x.bc", "--output: expected another file than input, found 'x.bc'"),
        (
            "compile x.bc -o ./link.bc",
            "--output: expected another file than input, found 'link.bc'",
        ),
        (
            "size-report x.bc y.bc --html y.bc",
            "--html: expected another file than after, found 'y.bc'",
        ),
        (
            "size-report x.bc sources --html sources/page.html",
            "--html: expected a place outside after, found 'sources/page.html'",
        ),
        (
            "project --build y.bc --local sources --output sources/project.txt",
            "--output: expected a place outside --local, found 'sources/project.txt'",
        ),
        (
            "rollout --log x.log --sites --timeline x.log.sites",
            "--timeline: expected another file than --log, found 'x.log.sites'",
        ),
    ],
)
def test_other_files(words: str, message: str) -> None:
    Path("x.bc").write_bytes(b"x")
    Path("y.bc").write_bytes(b"y")
    Path("link.bc").symlink_to("x.bc")
    Path("sources").mkdir()
    done = run(*shlex.split(words), cwd=Path())
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"mlgo-gym: error: {message}\n"
    assert (Path("x.bc").read_bytes(), Path("y.bc").read_bytes()) == (b"x", b"y")


def test_a_model_onto_itself() -> None:
    shutil.copytree(Path(__file__).parents[1] / "models" / "never", "never")
    message = "--output: expected another folder than --model, found 'never'"
    check_refused(message, "distill", "--model", "never", "--output", "./never", cwd=Path())


def test_a_rule_onto_the_run_of_its_model() -> None:
    shutil.copytree(Path(__file__).parents[1] / "models" / "never", "run/model")
    done = run("distill", "--model", "run/model", "--output", "run", cwd=Path())
    message = "--output: expected a folder without --model in it, found 'run'"
    assert (done.returncode, done.stderr) == (1, f"mlgo-gym: error: {message}\n")


def test_a_page_among_the_sources_that_it_shows() -> None:
    words = ("explain", "--corpus", "none", "--source", ".", "--html", "page.html")
    done = run(*words, cwd=Path())
    assert (done.returncode, "--html" in done.stderr) == (1, False)


@pytest.mark.parametrize("form", ["bitcode", "object"])
def test_a_corpus_onto_itself(small_folder: Path, form: str) -> None:
    files = {path: path.read_bytes() for path in small_folder.iterdir()}
    words = ("compile", "--corpus", small_folder, "-o", small_folder, "--emit", form)
    done = run(*words, cwd=Path())
    message = f"--output: expected another folder than --corpus, found '{small_folder}'"
    assert (done.returncode, done.stderr) == (1, f"mlgo-gym: error: {message}\n")
    assert files == {path: path.read_bytes() for path in small_folder.iterdir()}


def test_an_object_of_a_corpus_in_the_log(small_folder: Path, small: Sequence[str]) -> None:
    log = f"out/{min(small)}.o"
    Path(log).parent.mkdir(parents=True)
    words = ("compile", "--corpus", small_folder, "-o", "out", "--log", log, "--policy", "never")
    done = run(*words, cwd=Path())
    message = f"mlgo-gym: error: --output: expected another file than --log, found {log!r}\n"
    assert (done.returncode, done.stderr) == (1, message)


def test_a_file_in_the_place_of_the_folder_of_objects(small_folder: Path) -> None:
    Path("file").touch()
    done = run("compile", "--corpus", small_folder, "-o", "file", cwd=Path())
    message = "mlgo-gym: error: cannot write 'file': File exists\n"
    assert (done.returncode, done.stderr) == (1, message)


def test_devices_take_several_outputs(small_folder: Path) -> None:
    words = ("rollout", "--corpus", small_folder, "--log", "/dev/null", "--timeline", "/dev/null")
    assert run(*words, cwd=Path()).returncode == 0


@pytest.mark.e2e
@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (["evaluate", "--policy", "never", "--plots", "plots", "--html"], "total"),
        (["explain", "--policy", "never", "--decisions", "x.json", "--html"], "never"),
    ],
)
def test_a_page_that_cannot_be_written(words: list[str], shown: str, small_folder: Path) -> None:
    """All else is there: what is printed, and the other files."""
    done = run(*words, "/dev/full", "--corpus", small_folder, cwd=Path())
    assert done.returncode == 1
    assert done.stderr == "mlgo-gym: error: cannot write '/dev/full': No space left on device\n"
    assert shown in done.stdout
    assert any(map(Path.is_file, [Path("x.json"), Path("plots", "totals.png")]))


def test_a_folder_that_is_gone(small_folder: Path) -> None:
    command = ["dataset", "record", "--corpus", str(small_folder), "--output", "set"]
    line = f"mkdir gone && cd gone && rmdir ../gone && exec {shlex.join([*PROGRAM, *command])}"
    done = subprocess.run(["/bin/sh", "-c", line], capture_output=True, text=True, check=False)
    message = "mlgo-gym: error: cannot write 'set': No such file or directory\n"
    assert (done.returncode, done.stdout, done.stderr) == (1, "", message)


def test_a_log_that_cannot_be_written(small_folder: Path) -> None:
    words = ("rollout", "--policy", "never", "--log", "/dev/full", "--corpus", small_folder)
    done = run(*words, cwd=Path())
    assert (done.returncode, "total" in done.stdout) == (1, True)
    assert done.stderr == "mlgo-gym: error: cannot write '/dev/full': No space left on device\n"


def _object(clang22: str) -> None:
    source = b"int f(void) { return 1; }"
    subprocess.run([clang22, "-xc", "-", "-c", "-o", "x.o"], input=source, check=True)


@pytest.mark.parametrize("more", [[], ["--json"]])
def test_a_page_where_nobody_reads_the_output(clang22: str, more: list[str]) -> None:
    _object(clang22)
    reader, writer = os.pipe()
    os.close(reader)
    command = [*PROGRAM, "size-report", "x.o", "x.o", "--html", "x.html", *more]
    done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, check=False)
    os.close(writer)
    assert (done.returncode, done.stderr) == (1, b"")
    assert Path("x.html").stat().st_size > 0


def test_a_page_where_the_output_is_full(clang22: str) -> None:
    _object(clang22)
    command = [*PROGRAM, "size-report", "x.o", "x.o", "--html", "x.html"]
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, check=False)
    message = b"mlgo-gym: error: standard output: No space left on device\n"
    assert (done.returncode, done.stderr) == (1, message)
    assert Path("x.html").stat().st_size > 0


def test_a_report_that_cannot_be_written(clang22: str) -> None:
    _object(clang22)
    done = run("size-report", "x.o", "x.o", "--html", "/dev/full", cwd=Path())
    assert (done.returncode, "total" in done.stdout) == (1, True)
    assert "cannot write '/dev/full'" in done.stderr

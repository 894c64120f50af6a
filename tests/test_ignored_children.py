"""Whoever starts us may ignore SIGCHLD, which is inherited: no failure of a child's may be lost."""

from __future__ import annotations

import io
import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from mlgo_gym.llvm._launch import BranchProcess
from tests.cc.conftest import Driver, cache, driver, work
from tests.cli.command import PROGRAM
from tests.conftest import require
from tests.lab.programs.conftest import CALLS, DESCRIPTION, MakeCorpus, corpus

__all__ = ["cache", "corpus", "driver", "work"]
ROOT = Path(__file__).parents[1]


def ignore_children() -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)


def run(*command: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, cwd=cwd, preexec_fn=ignore_children, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize(
    "command",
    [
        ("workload", "check"),
        ("workload", "run", "--workload", "twice"),
        ("measure", "--policy", "never", "--meter", "size"),
    ],
    ids=lambda command: " ".join(command[:2]),
)
def test_programs_run(corpus: MakeCorpus, tmp_path: Path, command: tuple[str, ...]) -> None:
    folder = corpus(DESCRIPTION, {"twice.c": CALLS}).folder
    done = run(*PROGRAM, *command, "--corpus", folder, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_command_that_fails_is_not_extracted(tmp_path: Path) -> None:
    clang = require("clang-22", "clang-22")
    (tmp_path / "a.c").write_text("int f(void) { return 1; }\n")
    subprocess.run([clang, "-flto", "-c", "a.c"], cwd=tmp_path, check=True)
    entry = {"directory": str(tmp_path), "file": "a.c", "output": "a.o"}
    entry["command"] = f"{clang} -flto -fsanitize=nonsense -c a.c -o a.o"
    (tmp_path / "compile_commands.json").write_text(json.dumps([entry]))
    start = "import sys; from corpus_tools.extraction.command import main; sys.exit(main())"
    extract = (sys.executable, "-c", start)
    done = run(
        *extract, "--input", "compile_commands.json", "--input_type", "json",
        "--output_dir", "corpus", "--obj_base_dir", ".", cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 1
    assert "unsupported argument 'nonsense'" in done.stderr


def test_a_search_of_a_build(tmp_path: Path) -> None:
    (tmp_path / "a.c").write_text("int f(void) { return unknown; }\n")
    entry = {"directory": str(tmp_path), "file": "a.c", "command": "cc -O2 -c a.c -o a.o"}
    (tmp_path / "compile_commands.json").write_text(json.dumps([entry]))
    command = ("search", "--build", "compile_commands.json", "--output", "t", "--budget", "1s")
    done = run(*PROGRAM, *command, cwd=tmp_path)
    assert done.returncode == 1
    assert "a.o: clang exited with 1" in done.stderr


@pytest.mark.e2e
def test_first_uses_of_the_driver(driver: Driver, work: Path) -> None:
    """The script's shell and the process that makes the driver, too."""
    command = driver.command("-O2", "-c", "missing.c")
    done = subprocess.run(
        command, cwd=work, env={**driver.environment, "MLGO_CACHE": str(work / "new")},
        preexec_fn=ignore_children, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert "no such file or directory: 'missing.c'" in done.stderr


LIBRARY = """
import signal
from pathlib import Path

signal.signal(signal.SIGCHLD, signal.SIG_IGN)
import mlgo_gym
import gymnasium
from corpus_tools.clang import find_clang
from corpus_tools.errors import ToolchainError
from mlgo_gym.corpus import Corpus
from mlgo_gym.llvm import Compiler
from tests.conftest import SAMPLE_CORPUS

try:
    find_clang("clang-22")
except ToolchainError as error:
    print(error)
with Compiler() as compiler:
    module = Corpus.load(SAMPLE_CORPUS)["frame_stream.c"]
    assert compiler.compile_module(module).score
assert signal.getsignal(signal.SIGCHLD) == signal.SIG_IGN
"""


def test_a_library_leaves_the_signal_alone() -> None:
    """And clang, whose status it cannot know, is not run."""
    done = subprocess.run(
        [sys.executable, "-c", LIBRARY], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == (
        "SIGCHLD: expected a process that does not ignore it, or no exit status of clang's is "
        "known; signal.signal(signal.SIGCHLD, signal.SIG_DFL)\n"
    )


def test_a_process_that_the_kernel_has_reaped_has_ended() -> None:
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    process = BranchProcess(child.pid, io.BytesIO(), io.BytesIO())
    process.kill()
    process = BranchProcess(child.pid, io.BytesIO(), io.BytesIO())
    assert process.wait(60) == 0

"""Programs that are started: none outlives a process that is killed."""

from __future__ import annotations

import ast
import os
import signal
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import pytest

from corpus_tools.children import Guarded, run
from tests.waiting import wait_for

ROOT: Final = Path(__file__).parents[2]
OTHERS: Final = {
    "corpus_tools/children.py": "the guardian itself, and what all others start by",
    "corpus_tools/package_index.py": "pip's configuration, within seconds",
    "mlgo_gym/lab/tuning/_seed_vocabulary.py": "a tool's version, within seconds",
    "mlgo_gym/llvm/_launch.py": "workers, which end with the socket's other end",
    "mlgo_gym/llvm/_zygote.py": "workers, which end with the socket's other end",
    "mlgo_gym/llvm/command/_own_options.py": "a child of ours, within seconds",
    "mlgo_gym/model/_saved_model.py": "a child of ours, whose time is limited",
    "mlgo_gym/runners/_interpreter.py": "a child of ours, which ends with the socket's other end",
}
"""Modules that start a program by `subprocess` itself, and why that is well."""
PARENT: Final = """
import sys
from corpus_tools.children import {start}
{start}(["sh", "-c", "sleep 1000 & echo $$ $! >&2; wait"], {settings})
"""


def is_there(number: int) -> bool:
    try:
        status = Path(f"/proc/{number}/stat").read_text()
    except OSError:
        return False
    return status.rpartition(")")[2].split()[0] != "Z"  # nobody may reap it here


def watches(guardian: int) -> bool:
    try:
        links = [each.readlink() for each in Path(f"/proc/{guardian}/fd").iterdir()]
    except FileNotFoundError:  # it closes one meanwhile
        return False
    return any("pidfd" in str(each) for each in links)


@pytest.mark.parametrize("ending", [signal.SIGKILL, signal.SIGTERM, signal.SIGABRT])
def test_nothing_outlives_a_killed_process(ending: signal.Signals) -> None:
    """Nor does what the program has started, and the guardian itself is gone, too."""
    code = PARENT.format(start="run", settings="timeout=1000, stderr=sys.stderr")
    with ExitStack() as stack:
        parent = stack.enter_context(
            subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE, text=True)
        )
        stack.callback(parent.kill)  # a test that fails must not wait for it
        assert parent.stderr
        numbers = [*map(int, parent.stderr.readline().split())]
        children = Path(f"/proc/{parent.pid}/task/{parent.pid}/children").read_text().split()
        (guardian,) = {*map(int, children)} - {*numbers}
        wait_for(lambda: watches(guardian))
        numbers.append(guardian)
        assert all(map(is_there, numbers))
        parent.send_signal(ending)
        parent.wait()
    wait_for(lambda: not any(map(is_there, numbers)))


def test_what_has_ended_is_not_killed_later() -> None:
    """The guardian goes with the process, and takes nothing that is not its."""
    code = "from corpus_tools.children import run\nfor _ in range(20): run(['true'], timeout=60)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert done.stderr == b""


def test_a_program_past_its_time() -> None:
    with pytest.raises(subprocess.TimeoutExpired):
        run(["sleep", "1000"], timeout=0.1)


def test_a_program_that_does_not_start() -> None:
    with pytest.raises(FileNotFoundError):
        run([f"{os.curdir}/nothing"], timeout=1)
    with pytest.raises(FileNotFoundError):
        Guarded([f"{os.curdir}/nothing"])


def test_every_program_is_started_so() -> None:
    """A module that starts programs by itself gets a row, with the reason."""
    found = {
        str(path.relative_to(ROOT))
        for top in ("corpus_tools", "mlgo_gym")
        for path in (ROOT / top).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call)
        and ast.unparse(node.func) in {"subprocess.run", "subprocess.Popen", "os.fork", "os.system"}
    }
    assert found == set(OTHERS)

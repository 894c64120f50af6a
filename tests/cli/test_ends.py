"""A command that uses TensorFlow ends with a line where a library ends the process."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.cli.command import PROGRAM, run_process
from tests.waiting import wait_for

_ENDS = """
import argparse, ctypes, os, signal
from mlgo_gym.cli._ends import told_of_ends
def end(number):
    ctypes.string_at(0) if number == signal.SIGSEGV else os.kill(os.getpid(), number)
with told_of_ends(argparse.Namespace(**{options})):
    {inside}
{after}
"""
_TRAINS = "{'uses_tensorflow': 'train'}"


def ends(inside: str, after: str = "", options: str = _TRAINS, *python: str) -> tuple[int, str]:
    """The status of a process, and what it has said."""
    source = _ENDS.format(options=options, inside=inside, after=after)
    command = [sys.executable, *python, "-c", source]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.returncode, done.stderr


@pytest.mark.parametrize("name", ["SIGABRT", "SIGSEGV", "SIGBUS"])
def test_an_end_by_a_signal_is_said(name: str) -> None:
    assert ends(f"end(signal.{name})") == (
        1,
        f"mlgo-gym: error: train: expected TensorFlow to go on, found an end by {name}, as without "
        "memory or descriptors; the same command goes on from what is written\n",
    )


@pytest.mark.parametrize(
    ("inside", "after", "options", "python"),
    [
        ("pass", "os.abort()", _TRAINS, ()),
        ("os.abort()", "", "{}", ()),
        ("os.abort()", "", _TRAINS, ("-X", "faulthandler")),
    ],
    ids=["afterwards", "of another command", "where Python says it"],
)
def test_what_is_left_alone(inside: str, after: str, options: str, python: tuple[str, ...]) -> None:
    status, said = ends(inside, after, options, *python)
    assert status == -signal.SIGABRT
    assert ("Fatal Python error: Aborted" in said) == bool(python)
    assert "mlgo-gym" not in said


_INTERRUPTED = """
import sys, tensorflow
from mlgo_gym.cli import _train
from mlgo_gym.cli._main import main
def interrupted(*_): raise KeyboardInterrupt
tensorflow.errors.InvalidArgumentError.__init__ = interrupted
with tensorflow.Graph().as_default():
    operation = tensorflow.raw_ops.NoOp()
_train.run = lambda *_: operation.get_attr("none")
sys.exit(main(["train", "clone", "--output", "run"]))
"""


@pytest.mark.e2e
def test_an_interrupt_inside_tensorflow(tmp_path: Path) -> None:
    """Of which pybind11 makes an error of another kind, where one of TensorFlow's is being made."""
    command = [sys.executable, "-c", _INTERRUPTED]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 130
    assert done.stderr.endswith("mlgo-gym: error: interrupted\n")
    assert "Traceback" not in done.stderr


@pytest.mark.e2e
def test_a_training_run_goes_on(tmp_path: Path) -> None:
    """Ended in the middle, it leaves no process, and the same command makes a model."""
    train = ["train", "clone", "--output", "run", "--set", "hidden=[4]", "--set"]
    with subprocess.Popen(
        [*PROGRAM, *train, "fit.epochs=2"], cwd=tmp_path, stderr=subprocess.PIPE, text=True
    ) as process:
        wait_for(lambda: list(tmp_path.glob("run/progress.jsonl")) or process.poll() is not None)
        children = psutil.Process(process.pid).children(recursive=True)
        os.kill(process.pid, signal.SIGABRT)
        _, said = process.communicate()
    assert (process.returncode, said.count("found an end by SIGABRT")) == (1, 1)
    assert said.startswith("mlgo-gym: error: train: ")
    psutil.wait_procs(children)
    done = run_process(*train, "fit.epochs=2", "--json", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert Path(tmp_path, json.loads(done.stdout)["model"], "model.tflite").exists()

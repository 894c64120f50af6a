"""Commands that a library ends, or interrupts in its own way."""

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

_CRASHES = """
import ctypes, sys
from mlgo_gym.cli import _doctor
from mlgo_gym.cli._main import main
_doctor.run = lambda *_: ctypes.string_at(0)
main()
"""


@pytest.mark.parametrize("stderr", [subprocess.PIPE, None], ids=["open", "closed"])
def test_a_crash_says_where(stderr: int | None) -> None:
    command = [sys.executable, "-c", _CRASHES, "doctor"]
    if stderr is None:
        command = ["sh", "-c", 'exec "$@" 2>&-', "sh", *command]
    done = subprocess.run(command, stderr=stderr, text=True, check=False)
    assert done.returncode == -signal.SIGSEGV
    if stderr is not None:
        assert done.stderr.startswith("Fatal Python error: Segmentation fault\n")
        assert "_main.py" in done.stderr


_TWICE = """
import atexit, os, signal, sys
from mlgo_gym.cli import _models
from mlgo_gym.cli._main import main
signal.signal(signal.SIGINT, signal.default_int_handler)
def interrupt(*_):
    os.kill(os.getpid(), signal.SIGINT)
    return 0
atexit.register(interrupt)
_models.run = interrupt
sys.exit(main())
"""


def test_a_second_interrupt_at_the_end() -> None:
    """Of a key that is pressed twice: functions of the end of the process are not cut short."""
    command = [sys.executable, "-c", _TWICE, "models"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (130, "mlgo-gym: error: interrupted\n")


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
    assert process.returncode == -signal.SIGABRT
    assert "Fatal Python error: Aborted" in said
    psutil.wait_procs(children)
    done = run_process(*train, "fit.epochs=2", "--json", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert Path(tmp_path, json.loads(done.stdout)["model"], "model.tflite").exists()

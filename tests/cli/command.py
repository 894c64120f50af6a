"""``mlgo-gym`` in this process, which starts in no time, and in one of its own, as users run it."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest

from mlgo_gym.cli._main import main

PROGRAM = (sys.executable, "-m", "mlgo_gym.cli._main")

Done = subprocess.CompletedProcess[str]


def run(*arguments: str | Path, cwd: Path, **environment: str) -> Done:
    """What a command answers, prints and says, called in this process, in that folder."""
    stdout, stderr = (io.TextIOWrapper(io.BytesIO(), "utf-8", newline="") for _ in range(2))
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(stdout), redirect_stderr(stderr):
        patch.chdir(cwd)
        for name, value in ({"COLUMNS": "80"} | environment).items():
            patch.setenv(name, value)
        try:
            status = main([str(each) for each in arguments])
        except SystemExit as left:  # argparse's way to end
            status = int(left.code or 0)
    done = Done([*PROGRAM, *map(str, arguments)], status, _text(stdout), _text(stderr))
    sys.stderr.write(done.stderr)  # a test that fails shows it
    return done


def check_refused(message: str, *arguments: str | Path, cwd: Path, **environment: str) -> None:
    """See that a command ends with this error and status 1."""
    done = run(*arguments, cwd=cwd, **environment)
    assert (done.returncode, done.stderr) == (1, f"mlgo-gym: error: {message}\n")


def run_process(*arguments: str | Path, cwd: Path, **environment: str) -> Done:
    """The same by a process of its own."""
    return subprocess.run(
        [*PROGRAM, *arguments],
        capture_output=True,
        text=True,
        cwd=cwd,
        env=os.environ | {"COLUMNS": "80"} | environment,
        check=False,
    )


def _text(stream: io.TextIOWrapper) -> str:
    if stream.closed:
        return ""
    stream.seek(0)
    return stream.read()

"""A process that owns workers, killed in the middle of a decision."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import psutil

__all__ = ["children_of_killed"]


def children_of_killed(script: str, folder: Path) -> list[psutil.Process]:
    """Run a script that prints process ids and sleeps, and SIGKILL it once it has printed them.

    Args:
        script: Python, indented as one likes.
        folder: its temporary folder.
    """
    environment = os.environ | {"TMPDIR": str(folder)}
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(script)],
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    ) as parent:
        assert parent.stdout is not None
        children = [psutil.Process(int(pid)) for pid in parent.stdout.readline().split()]
        parent.kill()
    return children

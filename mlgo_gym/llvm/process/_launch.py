"""How child processes are started: with this Python, and this process's way to find modules."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def child_command(module: str, argument: str = "") -> list[str]:
    """The command line of a Python process that calls ``main`` of a module.

    It finds modules just as this process does, in the same order; its own folder and the current
    one are not put before them.

    Args:
        module: its full name.
        argument: Python text that is put between the parentheses of the call.
    """
    start = f"import sys; sys.path[:] = sys.argv[1:]; from {module} import main; main({argument})"
    path = [entry or str(Path.cwd()) for entry in sys.path]
    return [sys.executable, "-P", "-c", start, *path]


def child_environment() -> dict[str, str]:
    """This process's environment, and the mark by which `mlgo_gym` registers no environments."""
    return os.environ | {"MLGO_GYM_WORKER": "1"}

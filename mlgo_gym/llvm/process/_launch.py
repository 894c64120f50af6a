"""How child processes are started: with this Python, its llvmlite, and its way to find modules."""

from __future__ import annotations

import os
import sys
from importlib import metadata
from pathlib import Path
from typing import Final

from packaging.version import Version

from mlgo_gym.errors import EnvironmentSetupError

MINIMUM_LLVMLITE: Final = "0.48"
"""The oldest llvmlite whose LLVM has the advisors as they are needed (LLVM 22)."""


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


def check_llvmlite(version: str | None) -> None:
    """Raise unless this version of llvmlite embeds an LLVM that can be used.

    Raises:
        EnvironmentSetupError: it is missing (``None``) or too old.
    """
    if version is None or Version(version) < Version(MINIMUM_LLVMLITE):
        raise EnvironmentSetupError(
            f"llvmlite: expected version {MINIMUM_LLVMLITE} or newer, found {version or 'none'}; "
            f"run: pip install 'llvmlite>={MINIMUM_LLVMLITE}'"
        )


def installed_llvmlite() -> str | None:
    """The version of the installed llvmlite; importing it is left to the workers."""
    try:
        return metadata.version("llvmlite")
    except metadata.PackageNotFoundError:
        return None

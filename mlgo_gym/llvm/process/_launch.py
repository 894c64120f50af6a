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

LLVM_MAJOR: Final = 22
"""The LLVM that features, options, opcodes and the models that ship are those of."""

LLVMLITE: Final = f"llvmlite>={MINIMUM_LLVMLITE},<0.51"
"""What pip is asked for: those that have been seen to embed it."""

_ANY_LLVM: Final = "MLGO_ANY_LLVM"


def child_command(module: str, argument: str = "") -> list[str]:
    """The command line of a Python process that calls a module's ``main`` with these arguments.

    It finds modules just as this process does, in the same order; its own folder and the current
    one are not put before them.
    """
    start = f"import sys; sys.path[:] = sys.argv[1:]; from {module} import main; main({argument})"
    path = [entry or str(Path.cwd()) for entry in sys.path]
    return [sys.executable, "-P", "-c", start, *path]


def child_environment() -> dict[str, str]:
    """This process's environment, and the mark by which `mlgo_gym` registers no environments."""
    return os.environ | {"MLGO_GYM_WORKER": "1"}


def check_llvmlite(version: str | None) -> None:
    """Raise unless this version of llvmlite embeds an LLVM that can be used."""
    if version is None or Version(version) < Version(MINIMUM_LLVMLITE):
        raise EnvironmentSetupError(
            f"llvmlite: expected version {MINIMUM_LLVMLITE} or newer, found {version or 'none'}; "
            f"run: pip install '{LLVMLITE}'"
        )


def check_llvm(version: str, llvmlite: str) -> None:
    """Raise unless this is the LLVM that everything here was made for.

    ``MLGO_ANY_LLVM=1`` in the environment lifts it, for those who move mlgo_gym to another LLVM.
    """
    if os.environ.get(_ANY_LLVM) == "1" or version.partition(".")[0] == str(LLVM_MAJOR):
        return
    raise EnvironmentSetupError(
        f"LLVM: expected version {LLVM_MAJOR}, found {version} in llvmlite {llvmlite}; "
        f"run: pip install '{LLVMLITE}', or set {_ANY_LLVM}=1 to go on at your own risk"
    )


def installed_llvmlite() -> str | None:
    """The version of the installed llvmlite; importing it is left to the workers."""
    try:
        return metadata.version("llvmlite")
    except metadata.PackageNotFoundError:
        return None

"""Compilers of C, by which the driver and policies are made."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Final

from corpus_tools.clang import CANDIDATES
from mlgo_gym.driver._kept import MAX_KEPT_BYTES
from mlgo_gym.errors import EnvironmentSetupError
from mlgo_gym.files import read_bounded

_TIMEOUT_S: Final = 120.0


def compile_c(compiler: str, arguments: list[str], target: Path) -> bytes:
    """Compile and link in a folder that goes with all that a compiler leaves; returns the file."""
    try:
        done = subprocess.run(
            [compiler, *arguments, "-o", str(target)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            env={**os.environ, "TMPDIR": str(target.parent)},  # the user's may not be writable
            timeout=_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise EnvironmentSetupError(
            f"{compiler}: expected {target.name} within {_TIMEOUT_S:g} s, found none"
        ) from error
    if done.returncode:
        words = done.stderr.decode("utf-8", "replace").strip()
        raise EnvironmentSetupError(f"{compiler} cannot make {target.name}: {words}")
    return read_bounded(target, MAX_KEPT_BYTES)


def c_compiler() -> str:
    """The path of one.

    Raises:
        EnvironmentSetupError: there is none.
    """
    # For this machine; the clang that is named may be for another.
    names = (*CANDIDATES, "cc", os.environ.get("MLGO_CLANG"))
    found = next((path for name in names if name and (path := shutil.which(name))), None)
    if found is None:
        raise EnvironmentSetupError("mlgo-cc: expected a C compiler on PATH, found none")
    return found

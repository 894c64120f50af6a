"""Compilers of C, by which the driver and policies are made."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from corpus_tools.children import run
from corpus_tools.clang import CANDIDATES
from mlgo_gym.base import EnvironmentSetupError, read_bounded
from mlgo_gym.cc._kept import MAX_KEPT_BYTES

_TIMEOUT_S: Final = 120.0
_LED_BACK: Final = 110
"""The exit status of an ``mlgo-cc`` whose clang starts ``mlgo-cc`` again."""
_NEEDED: Final = ("MLGO_CACHE", "MLGO_NESTING")


def compile_c(compilers: Sequence[str], arguments: list[str], target: Path) -> bytes:
    """Compile and link by the first compiler that is none of ours; returns the file.

    Args:
        compilers: names or paths, at least one.
        arguments: all but the output.
        target: a file in a folder that goes with all that a compiler leaves.
    """
    for compiler in compilers:
        done = _run(compiler, arguments, target)
        if done.returncode != _LED_BACK:
            break
    if done.returncode:
        words = done.stderr.decode("utf-8", "replace").strip()
        raise EnvironmentSetupError(f"{compiler} cannot make {target.name}: {words}")
    return read_bounded(target, MAX_KEPT_BYTES)


def _run(compiler: str, arguments: list[str], target: Path) -> subprocess.CompletedProcess[bytes]:
    # Clang writes to names that it makes of the output's, with digits in place of each "%": so the
    # folder is not named. Temporary files go there as well; the user's folder may not be writable.
    try:
        return run(
            [str(Path(compiler).absolute()), *arguments, "-o", target.name],
            env={**_environment(), "TMPDIR": "."},
            cwd=target.parent,
            timeout=_TIMEOUT_S,
        )
    except subprocess.TimeoutExpired as error:
        raise EnvironmentSetupError(
            f"{compiler}: expected {target.name} within {_TIMEOUT_S:g} s, found none"
        ) from error


def _environment() -> dict[str, str]:
    """The user's, without settings for ``mlgo-cc``, which may be what is called clang."""
    theirs = {name: text for name, text in os.environ.items() if not name.startswith("MLGO_")}
    needed = {name: os.environ[name] for name in _NEEDED if name in os.environ}
    return {**theirs, **needed, "MLGO_CONFIG": os.devnull}


def c_compilers() -> list[str]:
    """The paths of those on PATH, at least one.

    Raises:
        EnvironmentSetupError: there is none.
    """
    # For this machine; the clang that is named may be for another.
    names = (*CANDIDATES, "cc", os.environ.get("MLGO_CLANG"))
    found = [path for name in names if name and (path := shutil.which(name))]
    if not found:
        raise EnvironmentSetupError("mlgo-cc: expected a C compiler on PATH, found none")
    return found

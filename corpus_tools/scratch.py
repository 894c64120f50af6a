"""Temporary folders that go with their process; those of killed ones go with the next start."""

from __future__ import annotations

import functools
import itertools
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

__all__ = ["is_alive", "process_namespace", "scratch_folder"]


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """A folder that is removed at the end, and those of this user's dead processes before.

    Yields:
        The folder, which its owner alone may read.

    Raises:
        OSError: it cannot be made.
    """
    _remove_stale()
    folder = Path(tempfile.mkdtemp(prefix=f"{_prefix()}{os.getpid()}-"))
    try:
        yield folder
    finally:
        _remove(folder)  # what stays is the next one's to remove


def _remove_stale() -> None:
    with suppress(OSError):
        for folder in Path(tempfile.gettempdir()).glob(f"{_prefix()}*"):
            owner = folder.name.removeprefix(_prefix()).partition("-")[0]
            about = folder.lstat()  # in a shared folder, others may have put a link here
            is_own = stat.S_ISDIR(about.st_mode) and about.st_uid == os.getuid()
            if is_own and owner.isdigit() and not is_alive(int(owner)):
                _remove(folder)


def _remove(folder: Path) -> None:
    """Remove a folder, however deep it is; what fails once, for want of memory, is tried again."""
    for _ in range(3):
        try:
            shutil.rmtree(folder, ignore_errors=True)
        except RecursionError:
            with suppress(OSError):
                _make_flat(folder)
        if not os.path.lexists(folder):
            return


def _make_flat(folder: Path) -> None:
    """Take folders out of folders until there are none in any."""
    names = itertools.count()
    while inside := [each for each in folder.iterdir() if each.is_dir() and not each.is_symlink()]:
        for each in inside:
            for path in each.iterdir():
                path.rename(folder / f"flat.{next(names)}")
            each.rmdir()


def _prefix() -> str:
    return f"corpus_tools.{os.getuid()}-{process_namespace()}-"


@functools.cache
def process_namespace() -> int:
    """The namespace of process ids, by which containers that share a folder are told apart."""
    try:
        return Path("/proc/self/ns/pid").stat().st_ino
    except OSError:
        return 0


def is_alive(pid: int) -> bool:
    """Whether there is such a process."""
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return True

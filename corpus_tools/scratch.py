"""Temporary folders that go with their process; those of killed ones go with the next start."""

from __future__ import annotations

import errno
import fcntl
import functools
import glob
import itertools
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

_LOCK: Final = ".mlgo-gym.lock"
_STAGED, _OLD = ".staged", "old"
_NAME_LENGTH: Final = 48


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


@contextmanager
def sibling_folder(target: Path) -> Iterator[Path]:
    """A folder beside a file or folder, for what is to take its place; removed at the end.

    Those that killed processes have left for the same target are removed before; what is ``old``
    in one gets the target's name back, if nothing has it. Each is locked by its owner, so that
    machines that share the folder do not remove each other's.

    Args:
        target: its folder is made if it is not there.

    Yields:
        The folder, which its owner alone may read. What is in it may be moved elsewhere.

    Raises:
        OSError: it cannot be made.
    """
    prefix = f".{target.name[:_NAME_LENGTH]}."
    target.parent.mkdir(parents=True, exist_ok=True)
    _remove_abandoned(target, prefix)
    folder, lock = _locked(prefix, target.parent)
    try:
        yield folder
    finally:
        os.close(lock)
        _remove(folder)


def _locked(prefix: str, parent: Path) -> tuple[Path, int]:
    """Make a folder and lock it; one that another has taken for abandoned before is left to it."""
    while True:
        folder = Path(tempfile.mkdtemp(_STAGED, prefix, parent))
        path = folder / _LOCK
        lock = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        with suppress(OSError):  # a file system without locks: it stays if this is killed
            fcntl.flock(lock, fcntl.LOCK_EX)
        if path.exists():
            return folder, lock
        os.close(lock)


@contextmanager
def replaced_folder(target: Path) -> Iterator[Path]:
    """Yield a folder beside ``target`` that takes its place when the block ends well.

    What was there goes after, and stays where the block or the exchange of the two fails. Of
    several that replace one folder at once, the last wins.

    Raises:
        OSError: the folder cannot be made or moved, or the target is a file.
    """
    target = Path(os.path.realpath(target))
    with sibling_folder(target) as scratch:
        # One level down: the folder around it is readable by its owner only.
        staged, old = scratch / "new", scratch / _OLD
        staged.mkdir()
        yield staged
        try:
            while not _exchanged(staged, target, old):
                _remove(old)  # what another has replaced since
        except BaseException:
            if old.exists() and not target.exists():
                old.rename(target)
            raise


def _exchanged(staged: Path, target: Path, old: Path) -> bool:
    """Put a folder in another's place, unless somebody else has put one there meanwhile."""
    if target.is_dir():
        with suppress(FileNotFoundError):  # another has just taken it away
            target.rename(old)
    try:
        staged.rename(target)
    except OSError as error:
        if error.errno not in {errno.ENOTEMPTY, errno.EEXIST}:
            raise
        return False
    return True


def _remove_abandoned(target: Path, prefix: str) -> None:
    """Remove folders beside a target whose owners are gone."""
    with suppress(OSError):
        for folder in target.parent.glob(f"{glob.escape(prefix)}*{_STAGED}"):
            about = folder.lstat()
            if stat.S_ISDIR(about.st_mode) and about.st_uid == os.getuid():
                _remove_unlocked(folder, target)


def _remove_unlocked(folder: Path, target: Path) -> None:
    try:
        lock = os.open(folder / _LOCK, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:  # it is being made, or somebody else's
        return
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:  # its owner is there, or nobody can tell
        return
    else:
        if (folder / _OLD).exists() and not os.path.lexists(target):
            (folder / _OLD).rename(target)
        _remove(folder)
    finally:
        os.close(lock)


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

"""Files that are whole or not there, in folders that one process writes at a time."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Final

from mlgo_gym.errors import DatasetError

PARTIAL: Final = ".partial"
"""How the names of files end that are being written."""


@contextlib.contextmanager
def staged(path: Path) -> Iterator[BinaryIO]:
    """Open a file for writing that takes its name when all has been written and is on the disk.

    Where writing fails, or the body raises, what was there before stays as it is. After a loss of
    power the file is the old one or the new one. Of a symbolic link, the target is replaced.

    Raises:
        DatasetError: it cannot be written, or is there and no file.
    """
    path = Path(os.path.realpath(path))
    if path.exists() and not path.is_file():
        raise DatasetError(str(path), "expected a file or nothing there, found something else")
    partial = path.with_name(f".{path.name}.{os.getpid()}{PARTIAL}")
    try:
        with partial.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
        _sync_folder(path.parent)
    except OSError as error:
        raise cannot("written", path, error) from error
    finally:
        with contextlib.suppress(OSError):
            partial.unlink(missing_ok=True)


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Make a folder if need be, and keep other processes from writing a dataset into it.

    Raises:
        DatasetError: it cannot be made, or another process is writing there.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise cannot("written", folder, error) from error
    try:
        _lock(descriptor, folder)
        yield
    finally:
        os.close(descriptor)


def cannot(verb: str, path: Path, error: OSError) -> DatasetError:
    """What an error of the operating system says of a file."""
    return DatasetError(str(path), f"cannot be {verb}: {error.strerror or error}")


def _lock(descriptor: int, folder: Path) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise DatasetError(str(folder), "another process is writing there") from error
    except OSError as error:
        raise cannot("locked", folder, error) from error


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

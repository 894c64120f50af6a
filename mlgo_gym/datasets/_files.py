"""Files that are whole or not there, in folders that one process writes at a time."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from mlgo_gym.errors import DatasetError
from mlgo_gym.files import replacing


@contextlib.contextmanager
def staged(path: Path) -> Iterator[BinaryIO]:
    """Open a file of a dataset for writing, as `mlgo_gym.files.replacing` does.

    Raises:
        DatasetError: it cannot be written, or is there and no file.
    """
    if path.exists() and not path.is_file():
        raise DatasetError(str(path), "expected a file or nothing there, found something else")
    try:
        with replacing(path) as file:
            yield file
    except OSError as error:
        raise cannot("written", path, error) from error


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

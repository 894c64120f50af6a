"""The folder that a writer puts parts into: its own one here, or one that a URI names.

There nothing is locked, and others may write to it. Each writer's parts have names of its own, an
object is there whole or not at all, and one that is put again replaces itself: a writer that is
killed leaves what it had put, and readers find whole parts alone.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from corpus_tools.scratch import scratch_folder
from mlgo_gym.base import (
    PARTIAL,
    DatasetError,
    RemoteFolder,
    check_contents,
    local_folder,
    locked_folder,
)
from mlgo_gym.datasets._parts import SUFFIX, cannot, part_name, part_paths


class PartFolder(Protocol):
    """A folder of parts."""

    def there(self) -> list[tuple[int, Path]]:
        """Return the parts that are there, with their numbers, to be read."""

    def new(self, number: int) -> contextlib.AbstractContextManager[Path]:
        """Return the path for the part of a number; the part is there when the block ends well."""


@contextlib.contextmanager
def part_folder(place: Path | str) -> Iterator[PartFolder]:
    """Return the folder of a writer's parts, for as long as it writes."""
    with contextlib.ExitStack() as stack:
        try:
            if isinstance(place, str):
                found: PartFolder = _SharedFolder(place, stack.enter_context(scratch_folder()))
            else:
                stack.enter_context(locked_folder(place, patience_s=0))
                check_contents(place)
                found = _OwnFolder(place)
        except BlockingIOError as error:
            raise DatasetError(str(place), "another process is writing there") from error
        except OSError as error:
            raise cannot("written", place, error) from error
        yield found


class _OwnFolder:
    """A folder that is locked."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        for stale in folder.glob(f".part-*{PARTIAL}"):  # an interrupted writer left it
            stale.unlink()

    def there(self) -> list[tuple[int, Path]]:
        return part_paths(self._folder)

    @contextlib.contextmanager
    def new(self, number: int) -> Iterator[Path]:
        yield self._folder / part_name(number)


class _SharedFolder:
    """A folder that a URI names."""

    def __init__(self, uri: str, scratch: Path) -> None:
        self._remote = RemoteFolder(uri, SUFFIX)
        self._scratch = scratch
        self._writer = secrets.token_hex(8)
        self._is_new = not self._remote.list()

    def there(self) -> list[tuple[int, Path]]:
        try:
            return [] if self._is_new else part_paths(local_folder(self._remote.uri, SUFFIX))
        except OSError as error:
            raise cannot("read", self._remote.uri, error) from error

    @contextlib.contextmanager
    def new(self, number: int) -> Iterator[Path]:
        name = part_name(number, self._writer)
        path = self._scratch / name
        yield path
        try:
            self._remote.put(path, name)
            path.unlink()
        except OSError as error:
            raise cannot("written", f"{self._remote.uri}/{name}", error) from error

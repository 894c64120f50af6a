"""Where a writer puts parts: a folder that it has alone, or one of S3 that others write to, too.

In S3 nothing is locked and nothing waited for. Each writer's parts have names of its own, an object
is there whole or not at all, and one that is put again replaces itself: whoever dies leaves what it
had put, and readers find whole parts alone.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from corpus_tools.scratch import scratch_folder
from mlgo_gym.datasets._parts import SUFFIX, cannot, part_name, part_paths
from mlgo_gym.errors import DatasetError
from mlgo_gym.files import PARTIAL, locked_folder
from mlgo_gym.storage._address import ObjectAddress
from mlgo_gym.storage._mirror import local_folder
from mlgo_gym.storage._objects import ObjectStore


class PartFolder(Protocol):
    """Where parts are."""

    def there(self) -> list[tuple[int, Path]]:
        """Those that are there, with their numbers, to be read."""

    def new(self, number: int) -> contextlib.AbstractContextManager[Path]:
        """Where to write the part of a number; it is there when the block ends well."""


@contextlib.contextmanager
def part_folder(place: Path | ObjectAddress) -> Iterator[PartFolder]:
    """Where a writer puts parts, as long as it writes."""
    with contextlib.ExitStack() as stack:
        try:
            if isinstance(place, ObjectAddress):
                store = stack.enter_context(ObjectStore())
                scratch = stack.enter_context(scratch_folder())
                found: PartFolder = _SharedFolder(place, scratch, store)
            else:
                stack.enter_context(locked_folder(place, patience_s=0))
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
    """A folder of S3."""

    def __init__(self, address: ObjectAddress, scratch: Path, store: ObjectStore) -> None:
        self._address = address
        self._scratch = scratch
        self._writer = secrets.token_hex(8)
        self._store = store
        self._is_new = not self._store.list(address, SUFFIX)

    def there(self) -> list[tuple[int, Path]]:
        try:
            return [] if self._is_new else part_paths(local_folder(self._address, SUFFIX))
        except OSError as error:
            raise cannot("read", self._address, error) from error

    @contextlib.contextmanager
    def new(self, number: int) -> Iterator[Path]:
        name = part_name(number, self._writer)
        path = self._scratch / name
        yield path
        address = self._address / name
        try:
            self._store.put(path, address)
            path.unlink()
        except OSError as error:
            raise cannot("written", address, error) from error

"""Folders that are worked on here and belong to S3: fetched when work begins, put as it goes on.

In S3 nothing is locked, and a folder is not replaced at once: each object is whole, and whoever
reads it while it is put may see some newer than others. So what the others are found by is put
last. A worker that is killed leaves what it has put, and goes on from there on any machine.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from corpus_tools.scratch import scratch_folder
from mlgo_gym.storage._address import ObjectAddress, place_of
from mlgo_gym.storage._mirror import local_folder
from mlgo_gym.storage._objects import ObjectStore

_Seen = dict[str, tuple[int, int]]


class WorkedFolder:
    """A folder here; what is written to it is at its place when that was put.

    Attributes:
        path: where to read and write.
        place: where it belongs, which is the same but for a folder of S3.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.place: Path | ObjectAddress = path

    def put(self, last: Sequence[str] = ()) -> None:
        """Have what has changed at its place.

        Args:
            last: names of files, wherever they are, that come after all others, in this order.

        Raises:
            OSError: it cannot be written; ``filename`` is its address.
        """


class _OfObjects(WorkedFolder):
    def __init__(self, path: Path, place: ObjectAddress, store: ObjectStore) -> None:
        super().__init__(path)
        self.place = self._address = place
        self._store = store
        self._seen: _Seen = {}

    def fetch(self) -> None:
        """Copy what is there."""
        if self._store.list(self._address, ""):
            there = local_folder(self._address)
            shutil.copytree(there, self.path, copy_function=shutil.copyfile, dirs_exist_ok=True)
        self._seen = self._files()

    def put(self, last: Sequence[str] = ()) -> None:
        found = self._files()
        changed = [name for name, about in found.items() if self._seen.get(name) != about]
        ranks = {name: rank for rank, name in enumerate(last, 1)}
        for name in sorted(changed, key=lambda name: ranks.get(name.rpartition("/")[2], 0)):
            self._store.put(self.path / name, self._address / name)
            self._seen[name] = found[name]
        for name in self._seen.keys() - found.keys():
            self._store.remove(self._address / name)
            del self._seen[name]

    def _files(self) -> _Seen:
        """Those that are whole, with what tells whether they have changed."""
        found: _Seen = {}
        for path in sorted(self.path.rglob("*")):
            name = path.relative_to(self.path)
            if path.is_file() and not any(part.startswith(".") for part in name.parts):
                about = path.stat()
                found[name.as_posix()] = (about.st_mtime_ns, about.st_size)
        return found


@contextmanager
def worked_folder(given: str | Path | ObjectAddress) -> Iterator[WorkedFolder]:
    """A folder that is given by path or URI, to be read and written here.

    Raises:
        OptionsError: it is no place, or one of another protocol.
        EnvironmentSetupError: s3fs is not installed.
        OSError: it cannot be read; ``filename`` is its address.

    >>> with worked_folder("runs/a") as folder:
    ...     folder.put()
    >>> folder.path
    PosixPath('runs/a')
    """
    place = place_of(given)
    if isinstance(place, Path):
        yield WorkedFolder(place)
        return
    with ObjectStore() as store, scratch_folder() as scratch:
        found = _OfObjects(scratch, place, store)
        found.fetch()
        yield found

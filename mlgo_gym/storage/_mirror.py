"""Folders of S3 as folders here, to be read like any other.

::

    CACHE/mirror/objects/KEY               an object's bytes, read only; KEY by what it is and holds
    CACHE/mirror/folders/KEY/BUCKET/...    a folder as it was listed: links to these

A folder is whole when it has its name, and what is listed otherwise later is another one: who reads
it sees one state of it. Objects are copied once, whatever folders have them, and only as they are
listed, by length and tag. What nobody asked for in `KEPT_S` goes.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Final

from mlgo_gym.files import FileError, locked_folder, replacing, staged_folder
from mlgo_gym.storage._address import ObjectAddress, place_of
from mlgo_gym.storage._objects import Entry, ObjectStore
from mlgo_gym.storage._own_folder import cache_folder, check_way, claim, remove

MAX_BYTES: Final = 1 << 36
"""How much a folder may hold, all together."""

SPARE_BYTES: Final = 1 << 28
"""What must stay free where mirrors are."""

KEPT_S: Final = 30 * 86400.0

_AT_ONCE: Final = 8
_KEY_BYTES: Final = 20


def local_folder(given: str | Path | ObjectAddress, suffix: str = "") -> Path:
    """The folder here that has what a path or URI names; of S3, it is mirrored.

    Args:
        given: a path, ``file:///PATH`` or ``s3://BUCKET/KEY``.
        suffix: how the names end of what is needed of it.

    Raises:
        OptionsError: it is no place, or one of another protocol.
        EnvironmentSetupError: s3fs is not installed, or others can write to the cache.
        OSError: it cannot be read, is not there, or is too large; ``filename`` is its address.
    """
    place = place_of(given)
    return place if isinstance(place, Path) else _mirror(place, suffix)


def is_mirror(path: Path) -> bool:
    """Whether a path is in a mirror, where nothing should be written."""
    return path.resolve().is_relative_to((cache_folder() / "mirror").resolve())


def _mirror(address: ObjectAddress, suffix: str) -> Path:
    with ObjectStore() as store:
        return _mirrored(store, address, suffix)


def _mirrored(store: ObjectStore, address: ObjectAddress, suffix: str) -> Path:
    entries = store.list(address, suffix)
    if not entries:
        raise FileError(errno.ENOENT, "expected objects in it, found none", str(address))
    if (total := sum(each.size_bytes for each in entries)) > MAX_BYTES:
        reason = f"expected at most {MAX_BYTES} bytes in it, found {total}: name a part of it"
        raise FileError(errno.EFBIG, reason, str(address))
    root = _root()
    origin = [store.endpoint(), address.bucket, address.key]
    objects = {each: root / "objects" / _digest(origin, each) for each in entries}
    listed = root / "folders" / _digest(origin, *entries)
    folder = listed / address.bucket / address.key
    with locked_folder(root):
        if not _is_whole(folder, entries):
            _copy(store, address, objects)
            with staged_folder(listed) as staged:
                _link(objects, staged / address.bucket / address.key)
        os.utime(listed)
        _tidy(root)
    return folder


def _root() -> Path:
    """The cache's folder of mirrors, which nobody else can write to."""
    root = cache_folder() / "mirror"
    root.parent.mkdir(parents=True, exist_ok=True)
    check_way(root.parent)
    for folder in (root, root / "objects", root / "folders"):
        claim(folder)
    return root


def _digest(origin: Sequence[str], *entries: Entry) -> str:
    told = [*origin, *([each.name, each.size_bytes, each.tag] for each in entries)]
    return hashlib.blake2b(json.dumps(told).encode(), digest_size=_KEY_BYTES).hexdigest()


def _is_whole(folder: Path, entries: Sequence[Entry]) -> bool:
    return all(_has_size(folder / each.name, each.size_bytes) for each in entries)


def _has_size(path: Path, size_bytes: int) -> bool:
    with suppress(OSError):
        return path.lstat().st_size == size_bytes
    return False


def _copy(store: ObjectStore, folder: ObjectAddress, objects: dict[Entry, Path]) -> None:
    """Copy what is not there yet, several at once; what was copied stays where one fails."""
    lacking = [(e, path) for e, path in objects.items() if not _has_size(path, e.size_bytes)]
    if not lacking:
        return
    needed = sum(entry.size_bytes for entry, _ in lacking) + SPARE_BYTES
    place = lacking[0][1].parent
    if (free := shutil.disk_usage(place).free) < needed:
        reason = f"expected {needed} bytes free in {str(place)!r}, found {free}; MLGO_CACHE names "
        raise FileError(errno.ENOSPC, reason + "another folder", str(folder))

    def copy(entry: Entry, path: Path) -> None:
        remove(path)
        with replacing(path) as file:
            store.copy(folder, entry, file)
            os.fchmod(file.fileno(), 0o400)

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        copies = [pool.submit(copy, *each) for each in lacking]
        try:
            for each in copies:
                each.result()
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


def _link(objects: dict[Entry, Path], folder: Path) -> None:
    for entry, path in objects.items():
        target = folder / entry.name
        target.parent.mkdir(parents=True, exist_ok=True)
        os.link(path, target)


def _tidy(root: Path) -> None:
    """Remove folders that were not used for long, and then objects that are in none."""
    before = time.time() - KEPT_S
    with suppress(OSError):
        for folder in (root / "folders").iterdir():
            if folder.stat().st_mtime < before:
                remove(folder)
        for path in (root / "objects").iterdir():
            about = path.stat()
            if about.st_nlink == 1 and about.st_mtime < before:
                path.unlink()

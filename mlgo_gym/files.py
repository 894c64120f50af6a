"""Files that survive an interruption: whole and old, or whole and new."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

__all__ = ["staged_folder", "write_atomically", "write_json"]


def write_atomically(path: Path, data: bytes) -> None:
    """Write a file beside its place, force it to the disk, and move it there.

    Raises:
        OSError: it cannot be written; what was there before still is.
    """
    descriptor, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).chmod(0o644)
        Path(temporary).replace(path)
    except BaseException:
        with suppress(OSError):
            Path(temporary).unlink()
        raise
    _sync_folder(path.parent)


def write_json(path: Path, value: Any) -> None:
    """Write a value as indented JSON, atomically."""
    write_atomically(path, (json.dumps(value, indent=2) + "\n").encode())


@contextmanager
def staged_folder(target: Path) -> Iterator[Path]:
    """Yield a folder that takes the target's place when the block ends well.

    All its files are forced to the disk before. What was at the target is deleted after.

    Raises:
        OSError: something cannot be written; what was there before still is.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{target.name}.", dir=target.parent) as scratch:
        staged, old = Path(scratch) / "new", Path(scratch) / "old"
        staged.mkdir()
        yield staged
        for path in sorted(staged.rglob("*")):
            if path.is_file():
                with path.open("rb") as file:
                    os.fsync(file.fileno())
            else:
                _sync_folder(path)
        _sync_folder(staged)
        if target.exists():
            target.rename(old)
        try:
            staged.rename(target)
        except OSError:
            if old.exists():
                old.rename(target)
            raise
        _sync_folder(target.parent)
        shutil.rmtree(old, ignore_errors=True)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

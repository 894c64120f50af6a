"""The files that ``mlgo-cc`` keeps between compilations, and why they may be trusted.

::

    FOLDER/bin/mlgo-cc, mlgo-c++, ...     the driver, one file under three names
    FOLDER/kept/PROBLEM-KEY.so, .error    a frozen policy, or why there is none
    FOLDER/kept/inside.so                 the library that clang's process loads
    FOLDER/kept/clang-KEY                 the major version of a clang, and whether it loads that

Each file ends in its checksum: 64 digits, the BLAKE2b-256 of its name, a NUL and all that stands in
front. Whatever has another, or could have been written by others than its user and root, is made
anew. ``native/kept.c`` and ``native/model.c`` are the other half.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from mlgo_gym.base import is_ours, read_bounded, remove, replacing, write_atomically

_DIGEST_BYTES: Final = 32
_KEY_BYTES: Final = 16
_CHECKSUM_DIGITS: Final = 2 * _DIGEST_BYTES
_MODEL_FILES: Final = ("model.tflite", "output_spec.json", "card.json", "ir2vec.json")
_SAVED_FILES: Final = (
    "saved_model.pb",
    "variables/variables.index",
    "variables/variables.data-00000-of-00001",
)
_MAX_MODEL_FILE_BYTES: Final = 1 << 28
MAX_KEPT_BYTES: Final = 1 << 30


def keep(path: Path, data: bytes, *, is_program: bool = False) -> None:
    """Write a file with its checksum, so that it is whole or not there.

    A program gets the oldest time there is: the script that starts it can see whether it was
    written to since, for nobody but its owner can set that time again.
    """
    remove(path)  # what is replaced would keep its permissions
    with replacing(path) as file:
        file.write(data + checksum(path.name, data))
        file.flush()
        os.fchmod(file.fileno(), 0o700 if is_program else 0o600)
        if is_program:
            os.utime(file.fileno(), (0, 0))


def is_kept(path: Path, *, is_program: bool = False) -> bool:
    """Whether a file is whole and nobody else's."""
    return read_kept(path, is_program=is_program) is not None


def read_kept(path: Path, *, is_program: bool = False) -> bytes | None:
    """The content of a file that is whole and nobody else's."""
    try:
        about = path.lstat()
        if not (stat.S_ISREG(about.st_mode) and is_ours(about)):
            return None
        data = read_bounded(path, MAX_KEPT_BYTES)
    except OSError:
        return None
    is_ready = not is_program or (about.st_mtime_ns == 0 and os.access(path, os.X_OK))
    content, end = data[:-_CHECKSUM_DIGITS], data[-_CHECKSUM_DIGITS:]
    return content if is_ready and end == checksum(path.name, content) else None


def checksum(name: str, data: bytes) -> bytes:
    """Return the bytes at the end of a file of that name.

    >>> checksum("clang-0", b"22")[:16]
    b'0dda1761dc73e874'
    """
    digest = hashlib.blake2b(os.fsencode(name) + b"\0", digest_size=_DIGEST_BYTES)
    digest.update(data)
    return digest.hexdigest().encode()


def copy_model(model: Path, target: Path, more: bytes) -> str:
    """Copy the files of a model that decide what it is, and return the key of what they hold.

    What cannot be copied, a FIFO or a file that is too long or may not be read, is linked to: the
    copy fails to be read as the model does. More than the files may be a part of the key.
    """
    target.mkdir()
    key = hashlib.blake2b(digest_size=_DIGEST_BYTES)
    for source in _model_files(model):
        name = source.relative_to(model)
        copy = target / name
        copy.parent.mkdir(exist_ok=True)
        digest = bytes(_DIGEST_BYTES)
        try:
            data = read_bounded(source, _MAX_MODEL_FILE_BYTES)
            digest = hashlib.blake2b(data, digest_size=_DIGEST_BYTES).digest()
            write_atomically(copy, data)
        except OSError:
            copy.unlink(missing_ok=True)
            copy.symlink_to(source.absolute())
        key.update(os.fsencode(name) + b"\0" + digest)
    key.update(more)
    return key.digest()[:_KEY_BYTES].hex()


def named_file(path: str, data: bytes | None) -> bytes:
    """Return the part of a key for a file that was named, which may not be there."""
    name = os.fsencode(path) + b"\0"
    if data is None:
        return name
    return name + name + hashlib.blake2b(data, digest_size=_DIGEST_BYTES).digest()


def _model_files(model: Path) -> Iterator[Path]:
    fixed = [each for each in (model / name for name in _MODEL_FILES) if _is_there(each)]
    yield from fixed
    if fixed[:1] == [model / _MODEL_FILES[0]]:
        return
    yield from (each for each in (model / name for name in _SAVED_FILES) if _is_there(each))
    with suppress(OSError):
        for path in sorted(model.iterdir(), key=os.fsencode):
            if path.suffix == ".json" and _is_there(path.with_suffix(".o")):
                yield path
                yield path.with_suffix(".o")


def _is_there(path: Path) -> bool:
    with suppress(OSError):
        return path.exists()
    return False

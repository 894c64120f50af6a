"""Zip files, and files of arrays as `numpy.savez` writes them, that anybody may have written."""

from __future__ import annotations

import io
import math
import struct
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from tokenize import TokenError
from typing import Any, Final

import numpy as np

MOST_ARRAYS: Final = 1 << 12

_ENTRY: Final = b"PK\1\2"
"""How the entry of a file begins in a zip file's directory."""
_METHODS: Final = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
# What zipfile raises over files that are damaged, and numpy over arrays in them.
_NO_ZIP: Final = (
    *(OSError, EOFError, MemoryError, RuntimeError, OverflowError),
    *(struct.error, zlib.error, zipfile.BadZipFile),
)
_NO_ARRAYS: Final = (KeyError, SyntaxError, TypeError, TokenError)
_HEADERS: Final = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}


@contextmanager
def open_zip(data: bytes, limit_bytes: int, limit_files: int) -> Iterator[zipfile.ZipFile]:
    """Open a zip file whose members are stored or deflated.

    Of another method, `zipfile` unpacks a block whole, whatever size the member claims: 4 kB of
    bzip2 take 10 GB.

    Args:
        data: the file.
        limit_bytes: how large all members may be together, unpacked.
        limit_files: how many members it may have.

    Raises:
        ValueError: it has more, or is damaged, also where that is found in the block.
    """
    if data.count(_ENTRY) > limit_files:  # before there is an object for each
        raise ValueError(f"expected at most {limit_files:,} files in it, found more")
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            members = archive.infolist()
            if other := [each for each in members if each.compress_type not in _METHODS]:
                what = f"expected files that are stored or deflated, found {other[0].filename!r}"
                raise ValueError(what)
            if (total := sum(each.file_size for each in members)) > limit_bytes:
                raise ValueError(f"expected at most {limit_bytes} bytes in it, found {total}")
            yield archive
    except _NO_ZIP as error:
        raise ValueError(str(error) or type(error).__name__) from error


def read_arrays(data: bytes, limit_bytes: int) -> dict[str, np.ndarray[Any, Any]]:
    """Read the arrays of a file by name.

    Args:
        data: the file.
        limit_bytes: how large all arrays may be together; the file's own size where none is to be
            compressed.

    Raises:
        ValueError: it has larger ones, is damaged, or holds something else than arrays whose
            elements are there.
    """
    try:
        with open_zip(data, limit_bytes, MOST_ARRAYS) as archive:
            return {
                each.filename.removesuffix(".npy"): _array(archive, each)
                for each in archive.infolist()
            }
    except (ValueError, *_NO_ARRAYS) as error:
        raise ValueError(f"expected a file of arrays: {error}") from error


def _array(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> np.ndarray[Any, Any]:
    """Read an array whose elements are there: memory is taken for as many as the header says."""
    with archive.open(member) as file:
        shape, _, dtype = _HEADERS[np.lib.format.read_magic(file)](file)
        found = member.file_size - file.tell()
        if math.prod(shape) * max(1, dtype.itemsize) != found:  # elements can be of no bytes
            what = f"expected an array of shape {shape} and type {dtype}, found {found} bytes"
            raise ValueError(f"{member.filename}: {what}")
        file.seek(0)
        array: np.ndarray[Any, Any] = np.lib.format.read_array(file, allow_pickle=False)
        return array

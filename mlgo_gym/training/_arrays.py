"""Reading arrays that anybody may have written: ``.npz`` files as `numpy.savez` writes them."""

from __future__ import annotations

import io
import math
import struct
import zipfile
from tokenize import TokenError
from typing import Any

import numpy as np

_SUFFIX = ".npy"


def read_arrays(data: bytes) -> dict[str, np.ndarray[Any, Any]]:
    """The arrays of a file by name; what is compressed, or more than the file holds, is refused.

    Raises:
        ValueError: it is no such file, or damaged.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as file:
            members = file.infolist()
            if any(each.compress_type != zipfile.ZIP_STORED for each in members):
                raise ValueError("expected arrays that are not compressed, found some that are")
            if (total := sum(each.file_size for each in members)) > len(data):
                raise ValueError(f"expected at most {len(data)} bytes of arrays, found {total}")
            return {
                each.filename.removesuffix(_SUFFIX): _array(file.read(each)) for each in members
            }
    except (zipfile.BadZipFile, OSError, EOFError, RuntimeError, struct.error) as error:
        raise ValueError(f"expected a file of arrays: {error}") from error


def _array(data: bytes) -> np.ndarray[Any, Any]:
    stream = io.BytesIO(data)
    try:
        version = np.lib.format.read_magic(stream)
        if version != (1, 0):
            raise ValueError(f"expected version 1.0 of numpy's format, found {version}")
        shape, is_fortran, dtype = np.lib.format.read_array_header_1_0(stream)
    except (MemoryError, RecursionError, SyntaxError, TokenError, TypeError) as error:
        raise ValueError(f"expected an array's header: {error}") from error
    start = stream.tell()
    size = math.prod(shape) * dtype.itemsize
    if dtype.hasobject or not all(0 <= each <= len(data) for each in shape):
        raise ValueError(f"expected numbers that are there, found {dtype} {shape}")
    if size != len(data) - start:
        raise ValueError(f"expected {size} bytes of an array, found {len(data) - start}")
    flat = np.frombuffer(data, dtype, math.prod(shape), start) if size else np.empty(0, dtype)
    return flat.reshape(shape, order="F" if is_fortran else "C").copy()

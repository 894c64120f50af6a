"""Files of arrays that anybody may have written: ``.npz`` files as `numpy.savez` writes them."""

from __future__ import annotations

import io
import struct
import zipfile
from tokenize import TokenError
from typing import Any, Final

import numpy as np

# What numpy and zipfile raise over files that are damaged.
_ERRORS: Final = (
    *(OSError, EOFError, MemoryError, RuntimeError, SyntaxError, TypeError, TokenError),
    *(OverflowError, struct.error, zipfile.BadZipFile),
)


def read_arrays(data: bytes) -> dict[str, np.ndarray[Any, Any]]:
    """Read the arrays of a file by name.

    Raises:
        ValueError: it is damaged, compressed, or holds something else than arrays of its size.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as file:
            members = file.infolist()
        if any(each.compress_type != zipfile.ZIP_STORED for each in members):
            raise ValueError("expected arrays that are not compressed, found some that are")
        if (total := sum(each.file_size for each in members)) > len(data):
            raise ValueError(f"expected at most {len(data)} bytes of arrays, found {total}")
        with np.load(io.BytesIO(data), allow_pickle=False) as file:
            arrays = dict(file)
    except _ERRORS as error:
        raise ValueError(f"expected a file of arrays: {error}") from error
    for name, array in arrays.items():
        if not isinstance(array, np.ndarray) or array.size > len(data):  # elements of no bytes
            raise ValueError(f"{name}: expected an array whose elements are there, found none")
    return arrays

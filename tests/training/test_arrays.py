"""Files of arrays: what `numpy.savez` writes comes back, and nothing is made that is not there."""

from __future__ import annotations

import io
import zipfile
from typing import Any

import numpy as np
import pytest

from mlgo_gym.training._arrays import read_arrays


def saved(arrays: dict[str, Any]) -> bytes:
    file = io.BytesIO()
    np.savez(file, **arrays)
    return file.getvalue()


def zipped(data: bytes, method: int = zipfile.ZIP_STORED, count: int = 1) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as archive:
        for number in range(count):
            archive.writestr(f"{number}.npy", data)
    return file.getvalue()


def headed(shape: str, descr: str = "'<f8'", version: bytes = b"\x01\x00") -> bytes:
    text = f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}".encode()
    text += b" " * (-(len(text) + 11) % 64) + b"\n"
    return b"\x93NUMPY" + version + len(text).to_bytes(2, "little") + text


def test_what_is_saved_is_read() -> None:
    arrays: dict[str, Any] = {
        "a": np.arange(6, dtype=np.int32).reshape(2, 3),
        "b": np.asfortranarray(np.ones((3, 2))),
        "none": np.zeros((0, 4)),
        "one": np.array(7.5),
    }
    found = read_arrays(saved(arrays))
    assert found.keys() == arrays.keys()
    for name, array in arrays.items():
        assert found[name].dtype == array.dtype
        np.testing.assert_array_equal(found[name], array)
        assert found[name].flags.writeable


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "expected a file of arrays: File is not a zip file"),
        (
            zipped(headed("(1,)") + bytes(8), zipfile.ZIP_DEFLATED),
            "expected arrays that are not compressed, found some that are",
        ),
        (
            zipped(headed("(1000000000000,)")),
            "expected numbers that are there, found float64 (1000000000000,)",
        ),
        (zipped(headed("(2,)") + bytes(8)), "expected 16 bytes of an array, found 8"),
        (zipped(headed("(-1, -1)") + bytes(8)), "expected numbers that are there, found float64 "
         "(-1, -1)"),
        (zipped(headed("(1,)", "'|O'") + bytes(8)), "expected numbers that are there, found object "
         "(1,)"),
        (
            zipped(headed("(1,)", version=b"\x02\x00") + bytes(8)),
            "expected version 1.0 of numpy's format, found (2, 0)",
        ),
    ],
)  # fmt: skip
def test_what_is_refused(data: bytes, message: str) -> None:
    with pytest.raises(ValueError, match="^expected ") as caught:
        read_arrays(data)
    assert str(caught.value) == message


def test_one_array_that_is_there_many_times() -> None:
    """Entries of a zip's directory that all name the same bytes."""
    data = zipped(headed("(100,)") + bytes(800), count=3)
    directory = data.index(b"PK\x01\x02")
    entry = data.index(b"PK\x01\x02", directory + 4) - directory
    first = data[directory : directory + entry]
    end = data.index(b"PK\x05\x06")
    many = first * 9
    tail = bytearray(data[end:])
    tail[8:10] = tail[10:12] = (9).to_bytes(2, "little")
    tail[12:16] = len(many).to_bytes(4, "little")
    with pytest.raises(ValueError, match=r"^expected at most \d+ bytes of arrays, found 8352$"):
        read_arrays(data[:directory] + many + bytes(tail))

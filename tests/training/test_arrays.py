"""Files of arrays: what `numpy.savez` writes comes back, and what is damaged is a `ValueError`."""

from __future__ import annotations

import io
import zipfile
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlgo_gym.training._arrays import read_arrays

ARRAYS: dict[str, Any] = {
    "a": np.arange(6, dtype=np.int32).reshape(2, 3),
    "b": np.asfortranarray(np.ones((3, 2))),
    "none": np.zeros((0, 4)),
    "one": np.array(7.5),
}


def saved(arrays: dict[str, Any]) -> bytes:
    file = io.BytesIO()
    np.savez(file, **arrays)
    return file.getvalue()


def zipped(data: bytes, method: int = zipfile.ZIP_STORED) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as archive:
        archive.writestr("0.npy", data)
    return file.getvalue()


def headed(shape: str, descr: str = "'<f8'") -> bytes:
    text = f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}".encode()
    text += b" " * (-(len(text) + 11) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text


def test_what_is_saved_is_read() -> None:
    found = read_arrays(saved(ARRAYS))
    assert found.keys() == ARRAYS.keys()
    for name, array in ARRAYS.items():
        assert found[name].dtype == array.dtype
        np.testing.assert_array_equal(found[name], array)
        assert found[name].flags.writeable


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "expected a file of arrays: File is not a zip file"),
        (zipped(b"0" * 99, zipfile.ZIP_DEFLATED), "expected arrays that are not compressed, found"),
        (zipped(bytes(99)).replace(b"c\0\0\0", b"c\xff\0\0"), "expected at most 207 bytes of arr"),
        (zipped(b"text"), "0: expected an array whose elements are there, found none"),
        (zipped(headed("(-1, -1)") + bytes(8)), "can only specify one unknown dimension"),
        (zipped(headed("(100000000000000000000,)")), "expected a file of arrays: "),
        (zipped(headed("(2,)") + bytes(8)), "EOF: reading array data, expected 16 bytes got 8"),
        (zipped(headed("(1,)", "'|O'") + bytes(8)), "Object arrays cannot be loaded when "),
        (zipped(headed("(1000000000000,)", "'|S0'")), "0: expected an array whose elements are "),
    ],
)
def test_what_is_refused(data: bytes, message: str) -> None:
    with pytest.raises(ValueError, match=r".") as caught:
        read_arrays(data)
    assert str(caught.value).startswith(message)


@given(st.data())
def test_damaged_files(draw: st.DataObject) -> None:
    """Cut, flipped or extended anywhere, they are refused, or hold no more than they have."""
    data = bytearray(saved(ARRAYS))
    for _ in range(draw.draw(st.integers(1, 4))):
        data[draw.draw(st.integers(0, len(data) - 1))] = draw.draw(st.integers(0, 255))
    data = data[: draw.draw(st.integers(0, len(data)))] + draw.draw(st.binary(max_size=40))
    with suppress(ValueError):
        assert all(each.size <= len(data) for each in read_arrays(bytes(data)).values())

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

from mlgo_gym.base import open_zip, read_arrays

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
    found = read_arrays(saved(ARRAYS), 1 << 12)
    assert found.keys() == ARRAYS.keys()
    for name, array in ARRAYS.items():
        assert found[name].dtype == array.dtype
        np.testing.assert_array_equal(found[name], array)
        assert found[name].flags.writeable


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "File is not a zip file"),
        (zipped(headed("(99,)") + bytes(792), zipfile.ZIP_DEFLATED), "expected at most "),
        (zipped(bytes(99)).replace(b"c\0\0\0", b"c\xff\0\0"), "expected at most 207 bytes in it"),
        (zipped(b"text"), "EOF: reading magic string, expected 8 bytes got 4"),
        (zipped(headed("(-1, -1)") + bytes(8)), "can only specify one unknown dimension"),
        (
            zipped(headed("(2,)") + bytes(8)),
            "0.npy: expected an array of shape (2,) and type float",
        ),
        (zipped(headed("(1125899906842624,)") + bytes(8)), "0.npy: expected an array of shape (11"),
        (zipped(headed("(100000000000000000000,)")), "0.npy: expected an array of shape (1000000"),
        (zipped(headed("(1000000000000,)", "'|S0'")), "0.npy: expected an array of shape (100000"),
        (zipped(headed("(1,)", "'|O'") + bytes(8)), "Object arrays cannot be loaded when "),
        (zipped(headed("(1,)").replace(b"\x01\x00", b"\x03\x00") + bytes(8)), "(3, 0)"),
        (zipped(headed("[" * 9000)), ""),
    ],
)
def test_what_is_refused(data: bytes, message: str) -> None:
    with pytest.raises(ValueError, match=r".") as caught:
        read_arrays(data, len(data))
    assert str(caught.value).startswith(f"expected a file of arrays: {message}")


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_methods_whose_sizes_mean_nothing(method: int) -> None:
    """A member that claims ten bytes, and has 64 MiB, is not unpacked."""
    data = bytearray(zipped(bytes(1 << 26), method))
    for signature, place in ((b"PK\3\4", 22), (b"PK\1\2", 24)):
        at = data.rindex(signature) + place
        data[at : at + 4] = (10).to_bytes(4, "little")
    expected = "expected files that are stored or deflated, found '0.npy'"
    with pytest.raises(ValueError, match=expected), open_zip(bytes(data), 100, 1):
        pass
    with pytest.raises(ValueError, match=f"expected a file of arrays: {expected}"):
        read_arrays(bytes(data), 1 << 20)


def test_bounds_of_a_zip_file() -> None:
    data = saved(ARRAYS)
    with open_zip(data, 1 << 20, len(ARRAYS)) as archive:
        total = sum(each.file_size for each in archive.infolist())
    with open_zip(data, total, len(ARRAYS)):
        pass
    expected = f"expected at most {total - 1} bytes in it, found {total}"
    with pytest.raises(ValueError, match=expected), open_zip(data, total - 1, len(ARRAYS)):
        pass
    expected = "expected at most 3 files in it, found more"
    with pytest.raises(ValueError, match=expected), open_zip(data, total, 3):
        pass


def test_arrays_that_are_compressed() -> None:
    file = io.BytesIO()
    np.savez_compressed(file, zeros=np.zeros(1000))
    assert read_arrays(file.getvalue(), 1 << 14)["zeros"].shape == (1000,)
    with pytest.raises(ValueError, match="expected at most 1024 bytes in it, found 8128"):
        read_arrays(file.getvalue(), 1 << 10)


@given(st.data())
def test_damaged_files(draw: st.DataObject) -> None:
    """Cut, flipped or extended anywhere, they are refused, or hold no more than they have."""
    data = bytearray(saved(ARRAYS))
    for _ in range(draw.draw(st.integers(1, 4))):
        data[draw.draw(st.integers(0, len(data) - 1))] = draw.draw(st.integers(0, 255))
    data = data[: draw.draw(st.integers(0, len(data)))] + draw.draw(st.binary(max_size=40))
    with suppress(ValueError):
        assert all(each.size <= len(data) for each in read_arrays(bytes(data), len(data)).values())

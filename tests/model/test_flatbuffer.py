"""FlatBuffers by hand: fields that are there or not, and vectors that end where the file does."""

from __future__ import annotations

import struct
from collections.abc import Callable

import pytest

from mlgo_gym.model._tflite_reader import FlatbufferError, Table

KINDS: dict[str, tuple[int, Callable[[Table], object]]] = {
    "integers": (4, lambda table: table.integers(0, 10)),
    "reals": (4, lambda table: table.reals(0, 10)),
    "tables": (4, lambda table: table.tables(0, 10)),
    "bytes": (1, lambda table: table.data(0)),
}


def root(count: int, items: bytes) -> Table:
    """A table whose only field is a vector, in a file of 28 bytes and what is in the vector."""
    vtable = struct.pack("<HHHH", 6, 8, 4, 4)  # the last slot is past the end that is announced
    data = struct.pack("<I4s8siII", 16, b"TEST", vtable, 8, 4, count) + items
    return Table.root(data, b"TEST")


def test_what_is_in_a_vector() -> None:
    assert root(2, struct.pack("<ii", 7, -7)).integers(0, 2) == (7, -7)
    assert root(2, struct.pack("<ff", 0.5, -2)).reals(0, 2) == (0.5, -2.0)
    assert root(3, b"abc").data(0) == b"abc"
    assert root(3, b"abc").text(0) == "abc"
    assert root(0, b"").data(0) == b""


def test_fields_that_are_left_out() -> None:
    table = root(3, b"abc")
    assert [table.has(each) for each in range(3)] == [True, False, False]
    assert table.data(1) == b""
    assert table.integers(1, 10) == table.reals(1, 10) == ()
    assert table.tables(1, 10) == []
    assert table.table(1) is None
    assert (table.integer(1), table.integer(1, 5)) == (0, 5)
    assert (table.real(1), table.real(1, 0.5)) == (0.0, 0.5)
    assert table.integer(0, 5) == 4


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("lacking", [1, 2, 3, 4])
def test_a_vector_may_not_be_longer_than_the_file(kind: str, lacking: int) -> None:
    size, read = KINDS[kind]
    whole = bytes(4 * size)
    if kind != "tables":  # those would have to be some
        assert read(root(4, whole)) in {(0,) * 4, whole}
    there = (4 * size - lacking) // size
    with pytest.raises(FlatbufferError) as caught:
        read(root(4, whole[:-lacking]))
    assert str(caught.value) == f"expected at most {there} entries in a vector, found 4"


def test_a_vector_may_not_be_longer_than_is_wanted() -> None:
    table = root(4, bytes(16))
    assert table.integers(0, 4) == (0,) * 4
    with pytest.raises(FlatbufferError) as caught:
        table.integers(0, 3)
    assert str(caught.value) == "expected at most 3 entries in a vector, found 4"


def test_positions_outside_of_the_file() -> None:
    for position in (-1, 4):
        with pytest.raises(FlatbufferError) as caught:
            Table(bytes(4), position)
        assert str(caught.value) == f"expected a position below 4, found {position}"


def test_vectors_together_may_not_be_longer_than_the_file_twice() -> None:
    table = root(64, bytes(100))
    assert [len(table.data(0)) for _ in range(4)] == [64] * 4
    with pytest.raises(FlatbufferError) as caught:
        table.data(0)
    assert str(caught.value).endswith(" bytes of vectors in all, found more")

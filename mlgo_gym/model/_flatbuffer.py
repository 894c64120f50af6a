"""Tables of a FlatBuffers file, through Google's own accessors, with every length bounded.

The accessors are pure Python: what a malformed file can do to them is raise, or read other bytes of
the same file. `Table` adds the limits (positions inside the file, vectors no longer than it) and
the caller translates `FlatbufferError`. Vectors may overlap in a hostile file; what is read of all
of them together is limited too, to twice the file's size, and so is the number of tables.
"""

from __future__ import annotations

import struct
from typing import Any, Final

from flatbuffers import encode, number_types
from flatbuffers.table import Table as _Table

from corpus_tools.budget import Budget

MAX_TABLES: Final = 1 << 13
"""The most tables that are read of a file; a policy has some hundreds."""

_OFFSET_BYTES: Final = 4
_VTABLE_HEADER_BYTES: Final = 4
_FOREIGN_ERRORS: Final = (struct.error, IndexError, ValueError, TypeError, OverflowError)


class FlatbufferError(Exception):
    """The bytes are not those of a FlatBuffers file of the expected schema."""


class Table:
    """A table, fields by their number in the schema; a `FlatbufferError` bounds what they hold."""

    def __init__(self, data: bytes, position: int, budget: Budget | None = None) -> None:
        self._data = data
        self._budget = budget or Budget(
            FlatbufferError, bytes_of_vectors=2 * len(data), tables=MAX_TABLES
        )
        self._budget.charge(tables=1)
        self._check(position)
        self._table: Any = _Table(data, position)
        self._vtable = self._guard(
            lambda: position - self._table.Get(number_types.SOffsetTFlags, position), position
        )
        self._vtable_bytes = self._read(number_types.VOffsetTFlags, self._vtable)

    @classmethod
    def root(cls, data: bytes, identifier: bytes) -> Table:
        """The root table of a file that carries this identifier."""
        found = data[_OFFSET_BYTES : 2 * _OFFSET_BYTES]
        if found != identifier:
            raise FlatbufferError(f"expected the identifier {identifier!r}, found {found!r}")
        return cls(data, int.from_bytes(data[:_OFFSET_BYTES], "little"))

    def integer(self, field: int, default: int = 0, *, kind: str = "Int32") -> int:
        """A scalar field; ``kind`` is FlatBuffers' name of its type."""
        position = self._field(field)
        if not position:
            return default
        return int(self._read(getattr(number_types, f"{kind}Flags"), position))

    def real(self, field: int, default: float = 0.0) -> float:
        """A 32-bit float field."""
        position = self._field(field)
        return float(self._read(number_types.Float32Flags, position)) if position else default

    def has(self, field: int) -> bool:
        """Whether the field is there."""
        return self._field(field) != 0

    def table(self, field: int) -> Table | None:
        """A table field, or ``None`` where it is left out."""
        position = self._field(field)
        return self._child(position) if position else None

    def tables(self, field: int, limit: int) -> list[Table]:
        """A vector of tables."""
        start, count = self._vector(field, _OFFSET_BYTES, limit)
        return [self._child(start + _OFFSET_BYTES * index) for index in range(count)]

    def integers(self, field: int, limit: int) -> tuple[int, ...]:
        """A vector of 32-bit integers."""
        start, count = self._vector(field, 4, limit)
        return struct.unpack_from(f"<{count}i", self._data, start)

    def reals(self, field: int, limit: int) -> tuple[float, ...]:
        """A vector of 32-bit floats."""
        start, count = self._vector(field, 4, limit)
        return struct.unpack_from(f"<{count}f", self._data, start)

    def data(self, field: int) -> bytes:
        """A vector of bytes."""
        start, count = self._vector(field, 1, len(self._data))
        return self._data[start : start + count]

    def text(self, field: int) -> str:
        """A string, with what is not UTF-8 replaced."""
        return self.data(field).decode("utf-8", "replace")

    def _child(self, position: int) -> Table:
        return Table(self._data, self._follow(position), self._budget)

    def _field(self, field: int) -> int:
        """The position of a field's value, 0 where it is left out."""
        slot = _VTABLE_HEADER_BYTES + 2 * field
        if slot + 2 > self._vtable_bytes:
            return 0
        offset = self._read(number_types.VOffsetTFlags, self._vtable + slot)
        return int(self._table.Pos + offset) if offset else 0

    def _vector(self, field: int, element_bytes: int, limit: int) -> tuple[int, int]:
        position = self._field(field)
        if not position:
            return 0, 0
        start = self._follow(position)
        count = int(self._read(number_types.UOffsetTFlags, start))
        start += _OFFSET_BYTES
        room = (len(self._data) - start) // element_bytes
        if count > min(limit, room):
            raise FlatbufferError(
                f"expected at most {min(limit, room)} entries in a vector, found {count}"
            )
        self._budget.charge(bytes_of_vectors=count * element_bytes)
        return start, count

    def _follow(self, position: int) -> int:
        return position + int(self._read(number_types.UOffsetTFlags, position))

    def _read(self, flags: Any, position: int) -> Any:
        return self._guard(lambda: encode.Get(flags.packer_type, self._data, position), position)

    def _guard(self, read: Any, position: int) -> Any:
        self._check(position)
        try:
            return read()
        except _FOREIGN_ERRORS as error:
            raise FlatbufferError(f"position {position}: {error}") from error

    def _check(self, position: int) -> None:
        if not 0 <= position < len(self._data):
            raise FlatbufferError(f"expected a position below {len(self._data)}, found {position}")

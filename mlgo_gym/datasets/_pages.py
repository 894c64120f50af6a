"""What a Parquet file would take up, seen before any of it is decompressed.

The metadata at its end may say anything. What a reader allocates is what the pages' own headers
say: how long a page is when it is decompressed, and how many values it has, of which a single run
can stand for a billion. So these headers are read, which are structs of Thrift's compact protocol
(``parquet.thrift``); the pages themselves are skipped. Where they are is read the same way:
asked for a column whose size statistics do not fit, pyarrow ends the process (26.0).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from io import BufferedReader
from itertools import islice
from pathlib import Path
from types import MappingProxyType
from typing import Final, NamedTuple

from mlgo_gym.errors import DatasetError

__all__ = [
    "MAX_FOOTER_BYTES",
    "MAX_FOOTER_VALUES",
    "MAX_PAGES",
    "MAX_PAGES_BYTES",
    "check_footer",
    "check_pages",
]

MAX_FOOTER_BYTES: Final = 1 << 24
"""The most that the metadata of a part may take."""

MAX_PAGES_BYTES: Final = 1 << 26
"""The most that one page of each column may take together: what is held of a row group at once."""

MAX_PAGES: Final = 1 << 17
"""The most pages of a part that are looked at."""

MAX_FOOTER_VALUES: Final = 1 << 18
"""The most values, of whatever kind, of the metadata of a part; a column of a group takes about 30.
"""

_HEADER_BYTES: Final = 1 << 15
_MAX_LEVELS: Final = 8
_MAGIC: Final = b"PAR1"
_END: Final = struct.Struct("<I4s")  # how long the metadata are, before the magic number
_HEADERS: Final = MappingProxyType(
    {0: 5, 2: 7, 3: 8}
)  # by a page's kind: data, dictionary, data V2
_DICTIONARY: Final = 2
_TRUE, _FALSE, _BYTE, _I16, _I32, _I64, _DOUBLE, _BINARY = range(1, 9)
_LIST, _SET, _STRUCT = 9, 10, 12
_INTEGERS: Final = (_I16, _I32, _I64)
_SIZES: Final = MappingProxyType({_TRUE: 0, _FALSE: 0, _BYTE: 1, _DOUBLE: 8})
_BITS: Final = MappingProxyType({_I16: 16, _I32: 32, _I64: 64})  # Thrift cuts off what is more
_MAX_NUMBER: Final = (1 << 15) - 1  # of a field; of one above, too
_MAX_HEADER_VALUES: Final = 64  # of a page; one has about 20

# Of what the lists are that pyarrow knows, by the numbers of the fields from the metadata on. It
# reads them so whatever they say of themselves; others it skips by what they say.
_LISTS: Final = MappingProxyType(
    {
        **dict.fromkeys([(2,), (4,), (5,), (7,)], _STRUCT),
        **dict.fromkeys([(4, 1), (4, 4), (4, 1, 3, 8), (4, 1, 3, 13)], _STRUCT),
        **dict.fromkeys([(4, 1, 3, 2), (4, 1, 3, 17, 2)], _I32),
        **dict.fromkeys([(4, 1, 3, 16, 2), (4, 1, 3, 16, 3)], _I64),
        **dict.fromkeys([(4, 1, 3, 3), (4, 1, 8, 2, 1)], _BINARY),
    }
)
_Path = tuple[int, ...]


class _Fields(NamedTuple):
    """What is looked at of a struct, by the fields' numbers."""

    numbers: dict[tuple[int, int], int]  # by number and kind: of another kind, nobody reads it
    structs: dict[int, _Fields]
    lists: dict[int, list[_Fields]]

    def number(self, number: int, kind: int) -> int:
        if (number, kind) not in self.numbers:
            raise ValueError(f"expected an integer in field {number}, found none")
        return self.numbers[number, kind]

    def structs_of(self, number: int) -> list[_Fields]:
        if number not in self.lists:
            raise ValueError(f"expected a list of structs in field {number}, found none")
        return self.lists[number]


class _Page(NamedTuple):
    length: int
    size_bytes: int
    values: int


class _Column(NamedTuple):
    start: int
    end: int


class _Group(NamedTuple):
    rows: int
    columns: list[_Column]


def check_footer(file: BufferedReader, path: Path) -> None:
    """See that the metadata of a part are not longer than is read."""
    length, size = _footer_bytes(file)
    if length > MAX_FOOTER_BYTES:
        raise DatasetError(
            str(path),
            f"metadata: expected at most {MAX_FOOTER_BYTES} bytes, found {min(length, size)}",
        )
    file.seek(0)


def check_pages(
    file: BufferedReader, widths: Mapping[str, int], columns: Sequence[str] | None, path: Path
) -> None:
    """See that the row groups of a part can be read in bounded memory.

    Args:
        file: the part, of which `check_footer` has seen the metadata; where it stands does not
            matter.
        widths: how many values each column has in a row, in the order of the columns.
        columns: those that are looked at; ``None`` stands for all.
        path: the part's name.

    Raises:
        DatasetError: the metadata are damaged, or have more than `MAX_FOOTER_VALUES`; a column has
            another number of values than its rows say, or pages that cannot be told apart, are too
            many, or would take more than `MAX_PAGES_BYTES`.
    """
    count = 0
    for group in _groups(file, path):
        held = 0
        if len(group.columns) != len(widths):
            raise DatasetError(
                str(path), f"damaged: expected {len(widths)} columns, found {len(group.columns)}"
            )
        # What the metadata call a column decides nothing.
        for (name, width), column in zip(widths.items(), group.columns, strict=True):
            if columns is not None and name not in columns:
                continue
            pages = list(islice(_pages(file, column, name, path), MAX_PAGES + 1 - count))
            count += len(pages)
            if count > MAX_PAGES:
                raise DatasetError(
                    str(path), f"column {name!r}: expected at most {MAX_PAGES} pages, found more"
                )
            _check_values(pages, group.rows * width, name, path)
            held += sum(sorted(page.size_bytes for page in pages)[-2:])  # a dictionary is kept
            if held > MAX_PAGES_BYTES:
                raise DatasetError(
                    str(path),
                    f"column {name!r}: expected pages of at most {MAX_PAGES_BYTES} bytes, one of "
                    f"each column, found {held} (pyarrow's data_page_size makes them smaller)",
                )


def _check_values(pages: Sequence[_Page], expected: int, name: str, path: Path) -> None:
    values = sum(page.values for page in pages)
    if values != expected:
        raise DatasetError(
            str(path), f"damaged: column {name!r}: expected {expected} values, found {values}"
        )


def _footer_bytes(file: BufferedReader) -> tuple[int, int]:
    """How long a part's metadata say that they are, 0 where there are none, and how long it is."""
    size = file.seek(0, 2)
    if size < len(_MAGIC) + _END.size:
        return 0, size
    file.seek(-_END.size, 2)
    length, magic = _END.unpack(file.read(_END.size))
    return (length if magic == _MAGIC else 0), size


def _groups(file: BufferedReader, path: Path) -> list[_Group]:
    """The row groups of a part (``FileMetaData``)."""
    try:
        length, _ = _footer_bytes(file)
        file.seek(-_END.size - length, 2)
        fields, _ = _Reader(file.read(length), MAX_FOOTER_VALUES, _LISTS).struct()
        return [_group(each) for each in fields.structs_of(4)]
    except (ValueError, OSError) as error:
        raise DatasetError(str(path), f"damaged: metadata: {error}") from error


def _group(group: _Fields) -> _Group:
    return _Group(group.number(3, _I64), [_column(each) for each in group.structs_of(1)])


def _column(chunk: _Fields) -> _Column:
    if 3 not in chunk.structs:
        raise ValueError("expected where a column is, found nothing")
    about = chunk.structs[3]
    start, length = about.number(9, _I64), about.number(7, _I64)
    dictionary = about.numbers.get((11, _I64), 0)
    if 0 < dictionary < start:
        start = dictionary
    return _Column(start, start + length)


def _pages(file: BufferedReader, column: _Column, name: str, path: Path) -> Iterator[_Page]:
    start = column.start
    while start < column.end:
        try:
            file.seek(start)
            page = _page(file.read(_HEADER_BYTES))
        except (ValueError, OSError) as error:
            raise DatasetError(
                str(path),
                f"damaged: column {name!r}: expected a page at byte {start}: {error}",
            ) from error
        yield page
        start += page.length


def _page(data: bytes) -> _Page:
    header, length = _Reader(data, _MAX_HEADER_VALUES).struct()
    kind, compressed, size = (header.number(number, _I32) for number in (1, 3, 2))
    if min(compressed, size) < 0:
        raise ValueError(f"expected its sizes, found {compressed} and {size}")
    expected, found = _HEADERS.get(kind), sorted(header.structs)
    if expected is None or found != [expected]:  # of several, pyarrow goes by the kind
        raise ValueError(f"expected one header of its kind, found kind {kind} and fields {found}")
    values = header.structs[expected].number(1, _I32)
    if values < 0:
        raise ValueError(f"expected a number of values, found {values}")
    values = 0 if kind == _DICTIONARY else values
    return _Page(length + compressed, max(compressed, size), values)


class _Reader:
    """What is looked at of a struct in Thrift's compact protocol."""

    def __init__(
        self, data: bytes, max_values: int, lists: Mapping[_Path, int] = MappingProxyType({})
    ) -> None:
        self._data, self._lists = data, lists
        self._values, self._max_values = 0, max_values

    def struct(self) -> tuple[_Fields, int]:
        """The struct that the data start with, and where it ends."""
        try:
            return self._struct(0, ())
        except IndexError:
            raise ValueError(f"expected more than {len(self._data)} bytes") from None

    def _struct(self, at: int, path: _Path, level: int = 1) -> tuple[_Fields, int]:
        self._count(level)
        fields = _Fields({}, {}, {})
        seen: set[tuple[int, int]] = set()
        number = 0
        while head := self._data[at]:
            kind = head & 15
            number, at = self._number(at, number)
            if (number, kind) in seen:  # Thrift's own readers would join them
                raise ValueError(f"expected field {number} once, found it twice")
            seen.add((number, kind))
            place = (*path, number)
            if kind in _INTEGERS:
                self._count(level)
                fields.numbers[number, kind], at = self._signed(at, _BITS[kind])
            elif kind == _STRUCT:
                fields.structs[number], at = self._struct(at, place, level + 1)
            elif kind == _LIST and self._kind_of_list(at, place) == _STRUCT:
                fields.lists[number], at = self._structs(at, place, level)
            else:
                at = self._skipped(at, kind, level)
        return fields, at + 1

    def _number(self, at: int, before: int) -> tuple[int, int]:
        """A field's number, and where its value begins."""
        step = self._data[at] >> 4
        number, at = (before + step, at + 1) if step else self._signed(at + 1, _BITS[_I16])
        if not 0 < number <= _MAX_NUMBER:
            raise ValueError(f"expected numbers of fields of 1 to {_MAX_NUMBER}, found {number}")
        return number, at

    def _kind_of_list(self, at: int, place: _Path) -> int:
        found = self._data[at] & 15
        if (expected := self._lists.get(place, found)) != found:
            where = ".".join(map(str, place))
            raise ValueError(f"field {where}: expected a list of kind {expected}, found {found}")
        return found

    def _structs(self, at: int, path: _Path, level: int) -> tuple[list[_Fields], int]:
        count, at = self._length(at)
        structs = []
        for _ in range(count):
            struct, at = self._struct(at, path, level + 1)
            structs.append(struct)
        return structs, at

    def _skipped(self, at: int, kind: int, level: int) -> int:
        """Where a value ends."""
        self._count(level)
        if kind == _BINARY:
            length, at = self._unsigned(at)
            return at + length
        if kind in (_LIST, _SET):
            each = self._data[at] & 15
            count, at = self._length(at)
            for _ in range(count):  # of a list, truth values have a byte each
                at = self._skipped(at, _BYTE if each in (_TRUE, _FALSE) else each, level + 1)
            return at
        if kind == _STRUCT:
            return self._struct(at, (0,), level + 1)[1]
        if kind in _INTEGERS:
            return self._unsigned(at, _BITS[kind])[1]
        if kind not in _SIZES:
            raise ValueError(f"expected no field of kind {kind}")
        return at + _SIZES[kind]

    def _count(self, level: int) -> None:
        if level > _MAX_LEVELS:
            raise ValueError(f"expected at most {_MAX_LEVELS} levels, found more")
        self._values += 1
        if self._values > self._max_values:
            raise ValueError(f"expected at most {self._max_values} values, found more")

    def _length(self, at: int) -> tuple[int, int]:
        """How many values a list has."""
        count = self._data[at] >> 4
        return (count, at + 1) if count < 15 else self._unsigned(at + 1)

    def _signed(self, at: int, bits: int) -> tuple[int, int]:
        value, at = self._unsigned(at, bits)
        return (value >> 1) ^ -(value & 1), at

    def _unsigned(self, at: int, bits: int = 31) -> tuple[int, int]:
        value = 0
        for shift in range(0, bits, 7):
            byte = self._data[at]
            at += 1
            value |= (byte & 127) << shift
            if byte < 128 and value < 1 << bits:
                return value, at
        raise ValueError(f"expected a number of {bits} bits")

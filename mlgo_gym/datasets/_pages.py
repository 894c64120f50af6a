"""What a Parquet file would take up, seen before any of it is decompressed.

The metadata at its end may say anything. What a reader allocates is what the pages' own headers
say: how long a page is when it is decompressed, and how many values it has, of which a single run
can stand for a billion. So these headers are read, which are structs of Thrift's compact protocol
(``parquet.thrift``); the pages themselves are skipped.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from io import BufferedReader
from itertools import islice
from pathlib import Path
from typing import Any, Final, NamedTuple

from mlgo_gym.errors import DatasetError

__all__ = ["MAX_FOOTER_BYTES", "MAX_PAGES", "MAX_PAGES_BYTES", "check_footer", "check_pages"]

MAX_FOOTER_BYTES: Final = 1 << 24
"""The most that the metadata of a part may take."""

MAX_PAGES_BYTES: Final = 1 << 26
"""The most that one page of each column may take together: what is held of a row group at once."""

MAX_PAGES: Final = 1 << 17
"""The most pages of a part that are looked at."""

_HEADER_BYTES: Final = 1 << 15
_MAX_LEVELS: Final = 8
_MAGIC: Final = b"PAR1"
_DATA_HEADERS: Final = (5, 8)  # DataPageHeader and DataPageHeaderV2
_BOOLS, _BYTE, _DOUBLE, _BINARY, _STRUCT = (1, 2), 3, 7, 8, 12
_INTEGERS: Final = (4, 5, 6)


class _Page(NamedTuple):
    length: int
    size_bytes: int
    values: int


def check_footer(file: BufferedReader, path: Path) -> None:
    """See that the metadata of a part are not longer than is read."""
    file.seek(0, 2)
    if (size := file.tell()) >= 2 * len(_MAGIC) + 4:
        file.seek(-8, 2)
        length, magic = struct.unpack("<I4s", file.read(8))
        if magic == _MAGIC and length > MAX_FOOTER_BYTES:
            found = min(length, size)
            raise DatasetError(
                str(path), f"metadata: expected at most {MAX_FOOTER_BYTES} bytes, found {found}"
            )
    file.seek(0)


def check_pages(
    file: BufferedReader,
    metadata: Any,
    widths: Mapping[str, int],
    columns: Sequence[str] | None,
    path: Path,
) -> None:
    """See that the row groups of a part can be read in bounded memory.

    Args:
        file: the part; where it stands does not matter.
        metadata: of the part, as pyarrow has them.
        widths: how many values each column has in a row, in the order of the columns.
        columns: those that are looked at; ``None`` stands for all.
        path: the part's name.

    Raises:
        DatasetError: a column has another number of values than its rows say, or pages that
            cannot be told apart, are too many, or would take more than `MAX_PAGES_BYTES`.
    """
    count = 0
    for number in range(metadata.num_row_groups):
        group, held = metadata.row_group(number), 0
        if group.num_columns != len(widths):
            raise DatasetError(
                str(path), f"damaged: expected {len(widths)} columns, found {group.num_columns}"
            )
        for index, name in enumerate(widths):  # what the metadata call a column decides nothing
            if columns is not None and name not in columns:
                continue
            found = _pages(file, group.column(index), name, path)
            pages = list(islice(found, MAX_PAGES + 1 - count))
            count += len(pages)
            if count > MAX_PAGES:
                raise DatasetError(
                    str(path), f"column {name!r}: expected at most {MAX_PAGES} pages, found more"
                )
            _check_values(pages, group.num_rows * widths[name], name, path)
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


def _pages(file: BufferedReader, column: Any, name: str, path: Path) -> Iterator[_Page]:
    start = column.data_page_offset
    if column.has_dictionary_page and 0 < column.dictionary_page_offset < start:
        start = column.dictionary_page_offset
    end = start + column.total_compressed_size
    while start < end:
        try:
            file.seek(start)
            page = _page(file.read(_HEADER_BYTES))
        except (ValueError, OSError, IndexError) as error:
            raise DatasetError(
                str(path),
                f"damaged: column {name!r}: expected a page at byte {start}: {error}",
            ) from error
        yield page
        start += page.length


def _page(data: bytes) -> _Page:
    header, length = _struct(data, 0, 1)
    compressed, size = header.get(3), header.get(2)
    if not isinstance(compressed, int) or not isinstance(size, int) or min(compressed, size) < 0:
        raise ValueError(f"expected its sizes, found {compressed} and {size}")
    values = 0
    for key in _DATA_HEADERS:
        if isinstance(about := header.get(key), dict):
            values = about.get(1, -1)
    if not isinstance(values, int) or values < 0:
        raise ValueError(f"expected a number of values, found {values}")
    return _Page(length + compressed, max(compressed, size), values)


def _struct(data: bytes, at: int, level: int) -> tuple[dict[int, Any], int]:
    """The integers and structs of a struct by their ids, and where it ends."""
    if level > _MAX_LEVELS:
        raise ValueError(f"expected at most {_MAX_LEVELS} levels, found more")
    fields: dict[int, Any] = {}
    number = 0
    while kind := data[at]:
        at += 1
        if kind >> 4:
            number += kind >> 4
        else:
            number, at = _signed(data, at)
        fields[number], at = _value(data, at, kind & 15, level)
    return fields, at + 1


def _value(data: bytes, at: int, kind: int, level: int) -> tuple[Any, int]:
    if kind == _STRUCT:
        return _struct(data, at, level + 1)
    if kind in _INTEGERS:
        return _signed(data, at)
    if kind == _BINARY:
        length, at = _unsigned(data, at)
        return None, at + length
    sizes = dict.fromkeys(_BOOLS, 0) | {_BYTE: 1, _DOUBLE: 8}
    if kind not in sizes:
        raise ValueError(f"expected no field of kind {kind}")
    return None, at + sizes[kind]


def _signed(data: bytes, at: int) -> tuple[int, int]:
    value, at = _unsigned(data, at)
    return (value >> 1) ^ -(value & 1), at


def _unsigned(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
    raise ValueError("expected a number of 64 bits")

"""Parts: the Parquet files of a dataset, each whole by itself.

They are ``part-NUMBER.parquet``; where a URI names the folder, several may write, and they are
``part-NUMBER-WRITER.parquet``.

A part holds whole modules. Besides the dataset's header its metadata has, under `MODULES_KEY`, a
JSON list of them, with those of no decision: ``package``, ``module``, ``module_sha256``,
``policy``, ``opt_level`` and ``decisions``.

A writer's folder here is its own. One that a URI names is not locked, and others may write to it:
an object is there whole or not at all, and one that is put again replaces itself. A writer that is
killed leaves what it had put, and readers find whole parts alone.
"""

from __future__ import annotations

import contextlib
import json
import re
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from io import BufferedReader
from pathlib import Path
from typing import Any, BinaryIO, Final

from corpus_tools.reading import Shape, shaped
from corpus_tools.scratch import scratch_folder
from mlgo_gym.base import (
    PARTIAL,
    DatasetError,
    RemoteFolder,
    exclusive_folder,
    local_folder,
    open_regular,
    parse_json,
    replacing,
)
from mlgo_gym.datasets._arrow import arrow_schema, pa, pq, table_of, texts_of
from mlgo_gym.datasets._episodes import Episode, SourceKey
from mlgo_gym.datasets._header import METADATA_KEY, DatasetHeader

MODULES_KEY: Final = b"mlgo_gym.modules"
"""The key of the list of modules in a Parquet file's metadata."""

_ROW_GROUP_BYTES: Final = 8 << 20
"""How many bytes of observations are written, and read, at once."""

_ROW_GROUP_TEXT: Final = 1 << 25
"""How many characters of episodes' texts are, unless one episode has more."""

SUFFIX: Final = ".parquet"

MAX_TEXT_BYTES: Final = 1 << 24
"""The most that one text of a part's metadata may take."""

MAX_LIST_LENGTH: Final = 1 << 16
"""The most elements of one list of a part's metadata, such as its row groups."""

MAX_GROUP_BYTES: Final = 1 << 28
"""The most that the columns of a row group may take that are read, decompressed."""

_BUFFER_BYTES: Final = 1 << 16
_NAME: Final = re.compile(r"part-(\d{5,9})(-[0-9a-f]{16})?\.parquet", re.ASCII)
_ENTRY: Final[dict[str, Shape]] = {
    **dict.fromkeys((*SourceKey._fields, "opt_level"), str),
    "decisions": int,
}


@dataclass(frozen=True, slots=True)
class ModuleEntry:
    """One module of a part."""

    package: str
    module: str
    module_sha256: str
    policy: str
    opt_level: str
    decisions: int

    @property
    def key(self) -> SourceKey:
        """The key that a dataset has once."""
        return SourceKey(self.package, self.module, self.module_sha256, self.policy)


@dataclass(frozen=True, slots=True)
class Part:
    """One Parquet file of a dataset, as far as its metadata says."""

    path: Path
    header: DatasetHeader
    modules: tuple[ModuleEntry, ...] = field(repr=False)
    rows: int
    size_bytes: int


def part_paths(folder: Path) -> list[tuple[int, Path]]:
    """The parts of a folder with their numbers, in order; of one number, in that of their names."""
    return sorted(
        (int(match.group(1)), path)
        for path in folder.glob("part-*.parquet")
        if (match := _NAME.fullmatch(path.name))
    )


def part_name(number: int, writer: str = "") -> str:
    """Return the name of a part; a writer that is not alone has 16 digits of its own.

    >>> part_name(3), part_name(3, "0123456789abcdef")
    ('part-00003.parquet', 'part-00003-0123456789abcdef.parquet')
    """
    return f"part-{number:05}{writer and '-' + writer}.parquet"


def local_parts(given: str | Path) -> Path:
    """The folder here that has the parts of a dataset, which is given by path or URI.

    Raises:
        DatasetError: it is given by URI and cannot be copied.
    """
    try:
        return local_folder(given, SUFFIX)
    except OSError as error:
        raise DatasetError(
            str(error.filename or given), f"cannot be read: {error.strerror}"
        ) from error


def read_part(path: Path) -> Part:
    """Read the metadata of a part, and see that its columns are those that its header says."""
    try:
        with opened(path) as file:
            metadata, schema = file.metadata, file.schema_arrow
            if not schema.names:  # which may be no UTF-8
                raise DatasetError(str(path), "expected columns, found none")
            size_bytes = path.stat().st_size
    except (pa.ArrowException, UnicodeDecodeError) as error:
        raise DatasetError(str(path), f"expected a whole Parquet file: {error}") from error
    texts: dict[bytes, bytes] = metadata.metadata or {}
    if METADATA_KEY not in texts:
        raise DatasetError(
            str(path), f"expected a dataset of mlgo_gym, found no {METADATA_KEY.decode()!r} in it"
        )
    header = DatasetHeader.from_json(texts[METADATA_KEY], str(path))
    _check_columns(schema, arrow_schema(header), path)
    modules = _modules(texts.get(MODULES_KEY, b"null"), path)
    if (rows := sum(each.decisions for each in modules)) != metadata.num_rows:
        raise DatasetError(str(path), f"expected {rows} rows, found {metadata.num_rows}")
    return Part(path, header, modules, metadata.num_rows, size_bytes)


def write_part(
    path: Path, header: DatasetHeader, modules: Sequence[ModuleEntry], episodes: Sequence[Episode]
) -> None:
    """Write a part; it is whole and on the disk, or not there."""
    schema = arrow_schema(header)
    row_bytes = sum(spec.size_bytes for spec in header.layout.specs)
    entries = json.dumps([asdict(each) for each in modules])
    with staged(path) as file:
        writer = pq.ParquetWriter(file, schema, compression="zstd", write_page_checksum=True)
        try:
            for some in _by_length(episodes):
                table = table_of(some, schema)
                writer.write_table(table, row_group_size=max(1, _ROW_GROUP_BYTES // row_bytes))
            writer.add_key_value_metadata({MODULES_KEY: entries})
        finally:
            writer.close()


def _by_length(episodes: Sequence[Episode]) -> Iterator[Sequence[Episode]]:
    """The episodes in parts whose texts fit into a row group."""
    start = length = 0
    for index, episode in enumerate(episodes):
        length += sum(map(len, texts_of(episode)))
        if length > _ROW_GROUP_TEXT and index > start:
            yield episodes[start:index]
            start, length = index, sum(map(len, texts_of(episode)))
    if episodes:
        yield episodes[start:]


@contextlib.contextmanager
def opened(path: Path) -> Iterator[Any]:
    """Open a part as pyarrow's file, which holds few bytes of it at a time."""
    limits = {
        "thrift_string_size_limit": MAX_TEXT_BYTES,
        "thrift_container_size_limit": MAX_LIST_LENGTH,
    }
    options = {"page_checksum_verification": True, "pre_buffer": False, **limits}
    with reading(path) as raw, pq.ParquetFile(raw, buffer_size=_BUFFER_BYTES, **options) as file:
        yield file


def check_groups(
    file: Any, widths: Mapping[str, int], columns: Sequence[str] | None, path: Path
) -> None:
    """See that row groups have the values and sizes that they should, as the metadata say.

    Args:
        file: pyarrow's file.
        widths: how many values each column has in a row, in the order of the columns.
        columns: those that are read; ``None`` stands for all.
        path: the part's name.

    Raises:
        DatasetError: a row group has other columns or counts, or is too large.
    """
    for number in range(file.metadata.num_row_groups):
        group, size_bytes = file.metadata.row_group(number), 0
        if group.num_columns != len(widths):
            text = f"damaged: expected {len(widths)} columns, found {group.num_columns}"
            raise DatasetError(str(path), text)
        for index, (name, width) in enumerate(widths.items()):
            column = group.column(index)
            if column.num_values != (expected := group.num_rows * width):
                text = f"column {name!r}: expected {expected} values, found {column.num_values}"
                raise DatasetError(str(path), f"damaged: {text}")
            if columns is None or name in columns:
                size_bytes += max(column.total_uncompressed_size, column.total_compressed_size)
        if size_bytes > MAX_GROUP_BYTES:
            limit = f"expected at most {MAX_GROUP_BYTES} bytes"
            text = f"row group {number}: {limit}, found {size_bytes}"
            raise DatasetError(str(path), f"{text} (pyarrow's row_group_size makes them smaller)")


@contextlib.contextmanager
def staged(path: Path) -> Iterator[BinaryIO]:
    """Open a file of a dataset for writing, as `mlgo_gym.base._files.replacing` does."""
    if path.exists() and not path.is_file():
        raise DatasetError(str(path), "expected a file or nothing there, found something else")
    try:
        with replacing(path) as file:
            yield file
    except OSError as error:
        raise cannot("written", path, error) from error


@contextlib.contextmanager
def reading(path: Path) -> Iterator[BufferedReader]:
    """Open a regular file for reading; what the system says against it is a `DatasetError`."""
    try:
        with open_regular(path) as file:
            yield file
    except OSError as error:
        raise cannot("read", path, error) from error


def cannot(verb: str, path: Path | str, error: OSError) -> DatasetError:
    """Return the text of an operating system's error about a file."""
    return DatasetError(str(path), f"cannot be {verb}: {error.strerror or error}")


def _check_columns(found: Any, expected: Any, path: Path) -> None:
    """See that columns are those that are expected."""
    if found.equals(expected):
        return
    names = {each.name: each.type for each in expected}
    for each in found:
        if names.pop(each.name, None) != each.type:
            raise DatasetError(
                str(path),
                f"column {each.name!r}: expected {_type_of(expected, each.name)}, "
                f"found {each.type}",
            )
    lacking = list(names) or "them in another order or with other nulls"
    raise DatasetError(str(path), f"columns: expected {lacking}, found {found.names}")


def _type_of(schema: Any, name: str) -> str:
    return str(schema.field(name).type) if name in schema.names else "none of that name"


def _modules(text: bytes, path: Path) -> tuple[ModuleEntry, ...]:
    try:
        values = shaped(parse_json(text), [_ENTRY])
    except ValueError as error:
        raise DatasetError(str(path), f"{MODULES_KEY.decode()}: {error}") from error
    entries = tuple(ModuleEntry(**{name: each[name] for name in _ENTRY}) for each in values)
    for each in entries:
        if each.decisions < 0:
            problem = f"expected decisions of at least 0, found {each.decisions}"
            raise DatasetError(str(path), f"{MODULES_KEY.decode()}: {problem}")
    return entries


def merged(entries: Iterable[ModuleEntry]) -> tuple[ModuleEntry, ...]:
    """Entries of one key and level as one."""
    totals: dict[tuple[SourceKey, str], int] = {}
    for each in entries:
        name = each.key, each.opt_level
        totals[name] = totals.get(name, 0) + each.decisions
    return tuple(ModuleEntry(*key, level, count) for (key, level), count in totals.items())


@contextlib.contextmanager
def part_folder(place: Path | str) -> Iterator[PartFolder]:
    """Return the folder of a writer's parts, for as long as it writes."""
    with contextlib.ExitStack() as stack:
        try:
            if isinstance(place, str):
                found: PartFolder = _SharedFolder(place, stack.enter_context(scratch_folder()))
            else:
                stack.enter_context(exclusive_folder(place))
                found = _OwnFolder(place)
        except BlockingIOError as error:
            raise DatasetError(str(place), "another process is writing there") from error
        except OSError as error:
            raise cannot("written", place, error) from error
        yield found


class _OwnFolder:
    """A folder of parts that is locked."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        for stale in folder.glob(f".part-*{PARTIAL}"):  # an interrupted writer left it
            stale.unlink()

    def there(self) -> list[tuple[int, Path]]:
        """Return the parts that are there, with their numbers, to be read."""
        return part_paths(self._folder)

    @contextlib.contextmanager
    def new(self, number: int) -> Iterator[Path]:
        """Yield the path for the part of a number; the part is there when the block ends well."""
        yield self._folder / part_name(number)


class _SharedFolder:
    """A folder of parts that a URI names; its methods are those of `_OwnFolder`."""

    def __init__(self, uri: str, scratch: Path) -> None:
        self._remote = RemoteFolder(uri, SUFFIX)
        self._scratch = scratch
        self._writer = secrets.token_hex(8)
        self._is_new = not self._remote.list()

    def there(self) -> list[tuple[int, Path]]:
        try:
            return [] if self._is_new else part_paths(local_folder(self._remote.uri, SUFFIX))
        except OSError as error:
            raise cannot("read", self._remote.uri, error) from error

    @contextlib.contextmanager
    def new(self, number: int) -> Iterator[Path]:
        name = part_name(number, self._writer)
        path = self._scratch / name
        yield path
        try:
            self._remote.put(path, name)
            path.unlink()
        except OSError as error:
            raise cannot("written", f"{self._remote.uri}/{name}", error) from error


PartFolder = _OwnFolder | _SharedFolder

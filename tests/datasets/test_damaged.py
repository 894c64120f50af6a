"""What is wrong with a part of a dataset is told before it is read, by name."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mlgo_gym.datasets import _dataset as reading
from mlgo_gym.datasets import _pages
from mlgo_gym.datasets._arrow import TEXTS
from mlgo_gym.datasets._dataset import Dataset
from mlgo_gym.datasets._header import METADATA_KEY
from mlgo_gym.datasets._parts import MODULES_KEY
from mlgo_gym.errors import DatasetError
from mlgo_gym.problems._inlining_for_size import InliningForSize
from tests.datasets.samples import episode, source, write


def damaged(path: Path) -> Exception | None:
    """What a part says when it is read to its end."""
    try:
        list(Dataset.open(path).episodes())
    except DatasetError as error:
        return error
    return None


def test_a_part_that_is_cut_off(tmp_path: Path) -> None:
    path = write(tmp_path, episode(source())) / "part-00000.parquet"
    data = path.read_bytes()
    assert damaged(path) is None
    for size in (*range(0, len(data), 997), len(data) - 1):
        path.write_bytes(data[:size])
        assert str(damaged(path)).startswith(f"dataset {str(path)!r}: ")


def test_pages_that_are_damaged(tmp_path: Path) -> None:
    path = write(tmp_path, episode(source(), 50)) / "part-00000.parquet"
    data = bytearray(path.read_bytes())
    column = pq.read_metadata(path).row_group(0).column(10)
    assert column.path_in_schema == "call_penalty"
    data[column.data_page_offset + column.total_compressed_size - 3] ^= 1
    path.write_bytes(data)
    assert "CRC" in str(damaged(path))


def replaced(path: Path, metadata: dict[bytes, bytes], table: pa.Table | None = None) -> None:
    """Write a part again, as a program would that knows Parquet and not this layout."""
    table = pq.read_table(path) if table is None else table
    old = pq.read_metadata(path).metadata
    kept = {key: old[key] for key in (METADATA_KEY, MODULES_KEY)} | metadata
    pq.write_table(table.replace_schema_metadata(kept), path)


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        ({METADATA_KEY: b"{"}, "header: expected JSON: "),
        ({METADATA_KEY: b'{"format": 2}'}, "format: expected 1, found 2"),
        ({METADATA_KEY: b"[]"}, "format: expected 1, found []"),
        ({MODULES_KEY: b"7"}, "mlgo_gym.modules: expected a list of modules, found b'7'"),
        ({MODULES_KEY: b'[{"module": 1}]'}, "mlgo_gym.modules: expected a list of modules, found"),
        ({MODULES_KEY: b"[]"}, "expected 0 rows, found 3"),
    ],
)
def test_metadata_of_another_form(
    metadata: dict[bytes, bytes], message: str, tmp_path: Path
) -> None:
    path = write(tmp_path, episode(source())) / "part-00000.parquet"
    replaced(path, metadata)
    assert str(damaged(path)).startswith(f"dataset {str(path)!r}: {message}")


@pytest.mark.parametrize("counts", ["[5, -2]", "[true, 2]", "[2.0, 1]"])
def test_counts_that_are_none(counts: str, tmp_path: Path) -> None:
    path = write(tmp_path, episode(source())) / "part-00000.parquet"
    (entry,) = json.loads(pq.read_metadata(path).metadata[MODULES_KEY])
    modules = [entry | {"decisions": count} for count in json.loads(counts)]
    replaced(path, {MODULES_KEY: json.dumps(modules).encode()})
    problem = "mlgo_gym.modules: expected a list of modules, found b'[{"
    assert str(damaged(path)).startswith(f"dataset {str(path)!r}: {problem}")


def with_module(table: pa.Table, value: pa.Array) -> pa.Table:
    at = table.schema.get_field_index("module")
    column = pa.DictionaryArray.from_arrays(pa.array([0] * len(table), pa.int32()), value)
    return table.set_column(at, table.schema.field(at), column)


def test_pages_that_are_too_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However short they are in the file; those of a column that is not read do not matter."""
    path = write(tmp_path, episode(source())) / "part-00000.parquet"
    replaced(path, {}, with_module(pq.read_table(path), pa.array(["m" * 20_000])))
    monkeypatch.setattr(_pages, "MAX_PAGES_BYTES", 10_000)
    assert Dataset.open(path).read(["step"])["step"].tolist() == [0, 1, 2]
    assert re.fullmatch(
        re.escape(f"dataset {str(path)!r}: ") + r"column 'module': expected pages of at most 10000 "
        r"bytes, one of each column, found \d+ \(pyarrow's data_page_size makes them smaller\)",
        str(damaged(path)),
    )


def test_pages_that_are_too_many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path, episode(source())) / "part-00000.parquet"
    monkeypatch.setattr(_pages, "MAX_PAGES", 5)
    problem = "column 'module_sha256': expected at most 5 pages, found more"
    assert str(damaged(path)) == f"dataset {str(path)!r}: {problem}"


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        (b"\x15\x06", b"\x15\x08", "expected 3 values, found 4"),
        (b"\x15\x06", b"\x15\x05", "expected a page at byte {at}: expected a number of values, "
                                  "found -3"),
        (b"\x15\x06", b"\x1d\x06", "expected a page at byte {at}: expected no field of kind 13"),
    ],
)  # fmt: skip
def test_headers_of_pages_that_say_something_else(
    old: bytes, new: bytes, problem: str, tmp_path: Path
) -> None:
    """They are not part of what the checksums are of."""
    path = write(tmp_path, episode(source())) / "part-00000.parquet"
    data = bytearray(path.read_bytes())
    column = pq.read_metadata(path).row_group(0).column(len(TEXTS))
    assert column.path_in_schema == "step"
    at = column.data_page_offset
    found = data.index(old, at)
    assert found < at + 40
    data[found : found + len(old)] = new
    path.write_bytes(data)
    expected = f"dataset {str(path)!r}: damaged: column 'step': {problem.format(at=at)}"
    assert str(damaged(path)) == expected


def test_metadata_that_are_too_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path, episode(source())) / "part-00000.parquet"
    size = int.from_bytes(path.read_bytes()[-8:-4], "little")
    monkeypatch.setattr(_pages, "MAX_FOOTER_BYTES", size)
    assert damaged(path) is None
    monkeypatch.setattr(_pages, "MAX_FOOTER_BYTES", 1000)
    problem = f"metadata: expected at most 1000 bytes, found {size}"
    assert str(damaged(path)) == f"dataset {str(path)!r}: {problem}"


@pytest.mark.parametrize(
    ("metadata", "problem"),
    [
        (b"", "expected more than 0 bytes"),
        (b"\x00", "expected a list of structs in field 4, found none"),
        (b"\x46\x00\x00", "expected a list of structs in field 4, found none"),
        (b"\x49\x16\x02\x00", "field 4: expected a list of kind 12, found 6"),
        (b"\x49\x1c\x19\x13\x00\x00\x00", "field 4.1: expected a list of kind 12, found 3"),
        (b"\x09\x88\x80\x08\x0c\x00", "expected a number of 16 bits"),
        (b"\x09\x07\x0c\x00", "expected numbers of fields of 1 to 32767, found -4"),
        (b"\x06\xfe\xff\x03\x02\x16\x02\x00", "expected numbers of fields of 1 to 32767, "
                                                "found 32768"),
        (b"\x15\xff\xff\xff\xff\x1f\x00", "expected a number of 32 bits"),
        (b"\x16" + b"\xff" * 9 + b"\x02", "expected a number of 64 bits"),
        (b"\x49\x1c\x00\x00", "expected an integer in field 3, found none"),
        (b"\x49\x1c\x35\x02\x00\x00", "expected an integer in field 3, found none"),
        (b"\x49\x1c\x36\x02\x00\x00", "expected a list of structs in field 1, found none"),
        (b"\x16\x02\x06\x02\x02\x00", "expected field 1 once, found it twice"),
        (b"\x49\x1c\x19\x1c\x00\x26\x02\x00\x00", "expected where a column is, found nothing"),
        (b"\x1b", "expected no field of kind 11"),
        (b"\x19" * 9, "expected at most 8 levels, found more"),
        (b"\x1c" * 9, "expected at most 8 levels, found more"),
        (b"\x19\xf1\xff\xff\xff\xff\x07\x00", "expected at most 100 values, found more"),
        (b"\x19\xf1" + b"\xff" * 9 + b"\x00", "expected a number of 31 bits"),
        (b"\x16" + b"\xff" * 11, "expected a number of 64 bits"),
    ],
)  # fmt: skip
def test_metadata_that_are_damaged(
    metadata: bytes, problem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Structs of Thrift's compact protocol: a field's kind and number's step, then its value."""
    monkeypatch.setattr(_pages, "MAX_FOOTER_VALUES", 100)
    path = tmp_path / "part"
    path.write_bytes(b"PAR1" + metadata + len(metadata).to_bytes(4, "little") + b"PAR1")
    with path.open("rb") as file, pytest.raises(DatasetError) as caught:
        _pages.check_pages(file, {}, None, path)
    assert str(caught.value) == f"dataset {str(path)!r}: damaged: metadata: {problem}"


def header(*fields: bytes, kind: int = 0) -> bytes:
    """A page's header: its kind, two sizes, then what is given."""
    return b"\x15%c\x15\x00\x15\x00" % (2 * kind) + b"".join(fields) + b"\x00"


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (header(b"\x2c\x15\x06\x00"), ""),
        (header(b"\x2c\x15\x06\x00", b"\x3c\x15\x00\x00"), "kind 0 and fields [5, 8]"),
        (header(b"\x5c\x15\x06\x00"), "kind 0 and fields [8]"),
        (header(b"\x2c\x15\x06\x00", kind=1), "kind 1 and fields [5]"),
    ],
)
def test_headers_of_pages_of_several_kinds(data: bytes, problem: str, tmp_path: Path) -> None:
    """Pyarrow goes by the kind; what would be counted is another header's number of values."""
    path = tmp_path / "part"
    path.write_bytes(data)
    column = _pages._Column(0, len(data))
    with path.open("rb") as file:
        if not problem:
            assert [page.values for page in _pages._pages(file, column, "step", path)] == [3]
            return
        with pytest.raises(DatasetError) as caught:
            list(_pages._pages(file, column, "step", path))
    expected = f"expected one header of its kind, found {problem}"
    assert str(caught.value).endswith(f"column 'step': expected a page at byte 0: {expected}")


def test_headers_of_pages_of_too_many_values(tmp_path: Path) -> None:
    """Many columns may share a page, so that a small file could take hours."""
    path = tmp_path / "part"
    path.write_bytes(header(b"\x2c\x15\x06\x00", b"\x42" * 80))
    with path.open("rb") as file, pytest.raises(DatasetError) as caught:
        list(_pages._pages(file, _pages._Column(0, 99), "step", path))
    assert str(caught.value).endswith("expected at most 64 values, found more")


def test_metadata_in_which_pyarrow_would_see_something_else(tmp_path: Path) -> None:
    """It keeps 16 bits of a field's number: the row groups once more, of which there are none."""
    path = write(tmp_path, episode(source())) / "part-00000.parquet"
    data = path.read_bytes()
    size = int.from_bytes(data[-8:-4], "little")
    metadata = data[-8 - size : -9] + b"\x09\x88\x80\x08\x0c\x00"
    path.write_bytes(data[: -8 - size] + metadata + len(metadata).to_bytes(4, "little") + b"PAR1")
    assert pq.read_metadata(path).num_row_groups == 0
    problem = "damaged: metadata: expected a number of 16 bits"
    assert str(damaged(path)) == f"dataset {str(path)!r}: {problem}"


def test_episodes_that_are_too_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    row_bytes = sum(spec.size_bytes for spec in InliningForSize.sent())
    monkeypatch.setattr(reading, "_ROWS", 2)
    monkeypatch.setattr(reading, "MAX_EPISODE_BYTES", 4 * row_bytes)
    path = write(tmp_path / "short", episode(source(), 5)) / "part-00000.parquet"
    assert damaged(path) is None
    path = write(tmp_path / "long", episode(source(), 9)) / "part-00000.parquet"
    problem = f"expected episodes of at most {4 * row_bytes} bytes, found more"
    assert str(damaged(path)) == f"dataset {str(path)!r}: {problem}"


def test_texts_that_are_not_utf_8(tmp_path: Path) -> None:
    path = write(tmp_path, episode(source())) / "part-00000.parquet"
    wrong = pa.Array.from_buffers(pa.string(), 1, pa.array([b"\xff"]).buffers())
    replaced(path, {}, with_module(pq.read_table(path), wrong))
    problem = "column 'module': expected UTF-8: "
    assert str(damaged(path)).startswith(f"dataset {str(path)!r}: {problem}")


def test_a_parquet_file_of_somebody_else(tmp_path: Path) -> None:
    path = tmp_path / "part-00000.parquet"
    pq.write_table(pa.table({"a": [1]}), path)
    assert str(damaged(path)) == (
        f"dataset {str(path)!r}: expected a dataset of mlgo_gym, found no 'mlgo_gym.dataset' in it"
    )


def test_other_columns(tmp_path: Path) -> None:
    path = write(tmp_path, episode(source())) / "part-00000.parquet"
    table = pq.read_table(path)
    for changed, message in (
        (table.drop_columns(["threshold"]), "columns: expected ['threshold'], found ["),
        (table.append_column("x", table["step"]), "column 'x': expected none of that name, found"),
        (table.select(table.schema.names[::-1]), "columns: expected them in another order or"),
        (
            table.set_column(6, "step", table["step"].cast(pa.int64())),
            "column 'step': expected int32, found int64",
        ),
    ):
        replaced(path, {}, changed)
        assert str(damaged(path)).startswith(f"dataset {str(path)!r}: {message}")


def with_steps(table: pa.Table, steps: list[int]) -> pa.Table:
    at = table.schema.get_field_index("step")
    return table.set_column(at, table.schema.field(at), pa.array(steps, pa.int32()))


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        ([1, 2, 3], "expected step 0 in the first row, found another"),
        ([0, 2, 1], "damaged: expected steps in order, found [0, 2, 1]"),
    ],
)
def test_steps_out_of_order(steps: list[int], message: str, tmp_path: Path) -> None:
    path = write(tmp_path, episode(source())) / "part-00000.parquet"
    replaced(path, {}, with_steps(pq.read_table(path), steps))
    assert str(damaged(path)) == f"dataset {str(path)!r}: {message}"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ("{", "Expecting property name enclosed in double quotes: line 1 column 2 (char 1)"),
        ("[1]", "settings: expected a JSON object, found '[1]'"),
        (
            f'{{"a":"{"x" * (1 << 20)}"}}',
            "settings: expected at most 1048576 characters, found 1048584",
        ),
    ],
)
def test_settings_that_are_none(settings: str, message: str, tmp_path: Path) -> None:
    path = write(tmp_path, episode(source())) / "part-00000.parquet"
    table = pq.read_table(path)
    at = table.schema.get_field_index("settings")
    values = pa.array([settings] * len(table)).cast(table.schema.field(at).type)
    replaced(path, {}, table.set_column(at, table.schema.field(at), values))
    assert str(damaged(path)) == f"dataset {str(path)!r}: damaged: {message}"

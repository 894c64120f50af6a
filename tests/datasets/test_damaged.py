"""What is wrong with a part of a dataset is told before it is read, by name."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tracemalloc
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mlgo_gym.datasets import _dataset as reading
from mlgo_gym.datasets import _parts
from mlgo_gym.datasets._arrow import column_widths
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
        ({METADATA_KEY: b"{"}, "header: Expecting property name"),
        ({METADATA_KEY: b'{"format": 2}'}, "header: format: expected 1, found 2"),
        ({METADATA_KEY: b"[]"}, "header: expected a JSON object, found []"),
        ({MODULES_KEY: b"7"}, "mlgo_gym.modules: expected a list, found 7"),
        (
            {MODULES_KEY: b'[{"module": 1}]'},
            "mlgo_gym.modules: [0]: expected 'package', found none",
        ),
        ({MODULES_KEY: b"[]"}, "expected 0 rows, found 3"),
    ],
)
def test_metadata_of_another_form(
    metadata: dict[bytes, bytes], message: str, tmp_path: Path
) -> None:
    path = write(tmp_path, episode(source())) / "part-00000.parquet"
    replaced(path, metadata)
    assert str(damaged(path)).startswith(f"dataset {str(path)!r}: {message}")


@pytest.mark.parametrize(
    ("counts", "problem"),
    [
        ("[5, -2]", "expected decisions of at least 0, found -2"),
        ("[true, 2]", "[0].decisions: expected a whole number, found True"),
        ("[2.0, 1]", "[0].decisions: expected a whole number, found 2.0"),
    ],
)
def test_counts_that_are_none(counts: str, problem: str, tmp_path: Path) -> None:
    path = write(tmp_path, episode(source())) / "part-00000.parquet"
    (entry,) = json.loads(pq.read_metadata(path).metadata[MODULES_KEY])
    modules = [entry | {"decisions": count} for count in json.loads(counts)]
    replaced(path, {MODULES_KEY: json.dumps(modules).encode()})
    assert str(damaged(path)) == f"dataset {str(path)!r}: mlgo_gym.modules: {problem}"


def with_module(table: pa.Table, value: pa.Array) -> pa.Table:
    at = table.schema.get_field_index("module")
    column = pa.DictionaryArray.from_arrays(pa.array([0] * len(table), pa.int32()), value)
    return table.set_column(at, table.schema.field(at), column)


def test_row_groups_that_are_too_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However short they are in the file; columns that are not read do not matter."""
    path = write(tmp_path, episode(source())) / "part-00000.parquet"
    replaced(path, {}, with_module(pq.read_table(path), pa.array(["m" * 20_000])))
    monkeypatch.setattr(_parts, "MAX_GROUP_BYTES", 10_000)
    assert Dataset.open(path).read(["step"])["step"].tolist() == [0, 1, 2]
    assert re.fullmatch(
        re.escape(f"dataset {str(path)!r}: ") + r"row group 0: expected at most 10000 bytes, "
        r"found 2\d{4} \(pyarrow's row_group_size makes them smaller\)",
        str(damaged(path)),
    )


def test_values_that_are_not_those_of_the_rows(tmp_path: Path) -> None:
    """Of a list of one value, a row has another number of them."""
    path = write(tmp_path, episode(source())) / "part-00000.parquet"
    widths = column_widths(Dataset.open(path).header) | {"step": 2}
    with _parts.opened(path) as file, pytest.raises(DatasetError) as caught:
        _parts.check_groups(file, widths, None, path)
    problem = "damaged: column 'step': expected 6 values, found 3"
    assert str(caught.value) == f"dataset {str(path)!r}: {problem}"


@pytest.mark.parametrize("limit", ["MAX_TEXT_BYTES", "MAX_LIST_LENGTH"])
def test_metadata_that_are_too_long(
    limit: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path, episode(source())) / "part-00000.parquet"
    assert damaged(path) is None
    monkeypatch.setattr(_parts, limit, 10)
    assert str(damaged(path)).startswith(f"dataset {str(path)!r}: cannot be read: ")


CHANGED = """
import os, resource, sys, random
from pathlib import Path
from mlgo_gym.datasets._dataset import Dataset
from mlgo_gym.errors import DatasetError

sound, path, first, count = sys.argv[1:]
data = Path(sound).read_bytes()
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
os.dup2(os.open("/dev/null", os.O_WRONLY), 2)
for seed in range(int(first), int(first) + int(count)):
    draw = random.Random(seed)
    changed = bytearray(data)
    for _ in range(draw.randint(1, 3)):
        changed[draw.randrange(len(changed))] = draw.randrange(256)
    if draw.random() < 0.2:
        changed = changed[: draw.randrange(len(changed))]
    if draw.random() < 0.2:
        changed += draw.randbytes(draw.randint(1, 40))
    Path(path).write_bytes(changed)
    print(seed, flush=True)
    try:
        for each in Dataset.open(path).episodes():
            len(each)
    except DatasetError:
        pass
"""


@pytest.mark.parametrize("first", [0, 10_000])
def test_files_that_are_changed_anywhere(first: int, tmp_path: Path) -> None:
    """Cut, flipped or extended, they are sound or an error; pyarrow may end its process."""
    sound = write(tmp_path / "sound", episode(source(), 5)) / "part-00000.parquet"
    end = first + 150
    while first < end:
        arguments = [str(sound), str(tmp_path / "part-00000.parquet"), str(first), str(end - first)]
        command = [sys.executable, "-c", CHANGED, *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode == 0:
            return
        seed = int(done.stdout.split()[-1])
        assert done.returncode < 0, f"seed {seed}: expected a DatasetError"
        first = seed + 1


def test_episodes_that_are_too_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    row_bytes = sum(spec.size_bytes for spec in InliningForSize().layout.specs)
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
    ("length", "message"),
    [
        (1 << 20, "a site: expected at most 1048576 characters, found 1048594"),
        (500_000, "the sites of an episode: expected at most 67108864 characters, found 100003600"),
    ],
)
def test_sites_that_rows_share(length: int, message: str, tmp_path: Path) -> None:
    """A part has each text once, however many rows have it."""
    path = write(tmp_path, episode(source(), 200)) / "part-00000.parquet"
    site = json.dumps(["caller", "c" * length, []])
    table = pq.read_table(path)
    at = table.schema.get_field_index("site")
    values = pa.array([site] * len(table)).cast(table.schema.field(at).type)
    replaced(path, {}, table.set_column(at, table.schema.field(at), values))
    assert path.stat().st_size < 1 << 18
    assert str(damaged(path)) == f"dataset {str(path)!r}: damaged: {message}"


def test_equal_sites_are_one(tmp_path: Path) -> None:
    path = write(tmp_path, episode(source(), 3)) / "part-00000.parquet"
    table = pq.read_table(path)
    at = table.schema.get_field_index("site")
    values = pa.array(['["a","b",[]]'] * 3).cast(table.schema.field(at).type)
    replaced(path, {}, table.set_column(at, table.schema.field(at), values))
    (found,) = Dataset.open(path).episodes()
    assert found.sites[0] is found.sites[1] is found.sites[2]


def test_settings_of_many_modules_are_not_kept(tmp_path: Path) -> None:
    """A short text of a part can be settings that take much memory."""
    made = [episode(source(number, a=[[]] * 100_000 + [number]), 1) for number in range(20)]
    dataset = Dataset.open(write(tmp_path, *made))
    del made
    tracemalloc.start()
    try:
        assert sum(map(len, dataset.episodes())) == 20
        assert tracemalloc.get_traced_memory()[1] < 50_000_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ("{", "Expecting property name enclosed in double quotes: line 1 column 2 (char 1)"),
        ("[1]", "settings: expected a JSON object, found [1]"),
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

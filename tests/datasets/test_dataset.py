"""Reading datasets: what was written comes back, and what does not go together is refused."""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlgo_gym.datasets import _dataset as reading
from mlgo_gym.datasets import _pages
from mlgo_gym.datasets._arrow import TEXTS
from mlgo_gym.datasets._dataset import Dataset
from mlgo_gym.datasets._episodes import Episode, Source
from mlgo_gym.datasets._header import METADATA_KEY, DatasetHeader
from mlgo_gym.datasets._parts import MODULES_KEY
from mlgo_gym.datasets._writer import DatasetWriter
from mlgo_gym.errors import DatasetError
from mlgo_gym.problems._inlining_for_size import InliningForSize
from mlgo_gym.problems._observations import columns
from mlgo_gym.problems._problem import Problem
from mlgo_gym.problems._regalloc_eviction import RegallocEviction
from mlgo_gym.problems._regalloc_priority import RegallocPriority
from mlgo_gym.problems._registry import problems
from tests.datasets.samples import NAMES, episode, episodes, same, source
from tests.generated import examples

LLVM = "22.1.0"


def write(
    folder: Path,
    *found: Episode,
    problem: Problem | None = None,
    llvm_version: str | None = LLVM,
    opt_level: str | None = None,
) -> Path:
    """A dataset of episodes, each of another module."""
    header = DatasetHeader.of(problem or InliningForSize(), llvm_version, opt_level=opt_level)
    with DatasetWriter(folder, header) as writer:
        for each in found:
            writer.add(each.source, [each])
    return folder


@pytest.mark.parametrize("problem", problems().values())
@examples(20)
@given(data=st.data())
def test_what_is_written_is_read(problem: type[Problem], data: st.DataObject) -> None:
    sources = [
        Source(data.draw(NAMES), data.draw(NAMES), f"{number:064x}", data.draw(NAMES), {"a": [1]})
        for number in range(data.draw(st.integers(1, 4)))
    ]
    expected: list[Episode] = []
    with tempfile.TemporaryDirectory() as folder:
        size = data.draw(st.sampled_from([1, 1 << 20]))
        header = DatasetHeader.of(problem(), LLVM)
        with DatasetWriter(folder, header, max_part_bytes=size) as writer:
            for each in sources:
                found = data.draw(st.lists(episodes(each, problem), max_size=3))
                writer.add(each, found)
                expected += found
        dataset = Dataset.open(folder, problem=problem(), llvm_version=LLVM)
        read = list(dataset.episodes())
    assert len(read) == len(expected)
    assert all(map(same, read, expected))
    assert [entry.key for entry in dataset.modules] == [each.key for each in sources]
    assert dataset.row_count == sum(map(len, expected))


def test_episodes_over_several_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = [episode(source(number), size, seed=number) for number, size in enumerate((5, 3, 9, 1))]
    dataset = Dataset.open(write(tmp_path, *found))
    for rows in (1, 2, 3, 4, 5, 8, 18, 100):
        monkeypatch.setattr(reading, "_ROWS", rows)
        assert all(map(same, dataset.episodes(), found))


def test_batches_have_the_columns_as_arrays(tmp_path: Path) -> None:
    problem = RegallocEviction
    found = episode(source(), 10, context="main", problem=problem)
    dataset = Dataset.open(write(tmp_path, found, problem=problem()))
    batches = list(dataset.batches(4))
    assert [each.row_count for each in batches] == [4, 4, 2]
    batch = batches[1]
    assert batch.observations().tobytes() == found.observations[4:8].tobytes()
    expected = columns(found.observations[4:8], problem)
    assert {name: each.tobytes() for name, each in batch.features().items()} == {
        name: each.tobytes() for name, each in expected.items()
    }
    assert batch["mask"].shape == (4, 33)
    assert batch["step"].tolist() == [4, 5, 6, 7]
    assert set(batch["context"]) == {"main"}
    assert batch["action"].tolist() == found.actions[4:8].tolist()
    assert batch["saved_bytes"].tolist() == found.labels["saved_bytes"][4:8].tolist()
    assert np.isnan(batch["sample_weight"]).all()
    assert batch["reward"].tolist() == [0.25] * 4
    assert set(batch) == set(batch.rows.schema.names)
    assert len(batch) == len(list(batch))
    with pytest.raises(KeyError):
        batch["weight"]


def test_some_columns(tmp_path: Path) -> None:
    found = episode(source(), 10)
    dataset = Dataset.open(write(tmp_path, found))
    read = dataset.read(["cost_estimate", "module", "action"])
    assert list(read) == ["cost_estimate", "module", "action"]
    assert read["cost_estimate"].tolist() == found.observations["cost_estimate"].tolist()
    assert read["module"].tolist() == ["m0.c"] * 10
    batch = next(dataset.batches(columns=["action"]))
    with pytest.raises(DatasetError, match="batch: expected column 'sroa_savings', found"):
        batch.features()
    with pytest.raises(DatasetError, match=r"expected some of .*, found \['nothing'\]"):
        dataset.read(["action", "nothing"])


def test_nothing_to_read(tmp_path: Path) -> None:
    with DatasetWriter(tmp_path, DatasetHeader.of(InliningForSize(), LLVM)) as writer:
        writer.add(source(), [])
    with pytest.raises(DatasetError, match="expected decisions, found none"):
        Dataset.open(tmp_path).read(["action"])


def test_columns_say_what_they_are(tmp_path: Path) -> None:
    folder = write(tmp_path, episode(source()))
    schema = pq.read_schema(folder / "part-00000.parquet")
    metadata = schema.field("threshold").metadata
    assert metadata[b"unit"] == b"cost"
    assert metadata[b"meaning"].startswith(b"5 and the target's bonuses")
    assert schema.field("module").type == pa.dictionary(pa.int32(), pa.string())
    assert schema.names[0] == "package"


def test_other_tools_read_it(tmp_path: Path) -> None:
    found = episode(source(), 4)
    table = pq.read_table(write(tmp_path, found))
    assert table.column("inlining_default").to_pylist() == [
        int(each) for each in found.observations["inlining_default"]
    ]
    assert table.column("sample_weight").null_count == 4


def test_tensorflow_is_not_needed() -> None:
    code = "import sys, mlgo_gym.datasets._imports, mlgo_gym.datasets._record; print(*sys.modules)"
    command = [sys.executable, "-W", "error", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "pyarrow" in done.stdout.split()
    assert "tensorflow" not in done.stdout


def test_several_folders(tmp_path: Path) -> None:
    one = write(tmp_path / "one", episode(source(1)))
    two = write(tmp_path / "two", episode(source(2)))
    dataset = Dataset.open(one, two / "part-00000.parquet", problem=InliningForSize)
    assert [each.source.module for each in dataset.episodes()] == ["m1.c", "m2.c"]
    assert dataset.differences == ()


ANOTHER_LLVM = "llvm_version: expected 22.1.0, found 21.1.8"
ANOTHER_LIMIT = "size_increase_threshold: expected 2.0, found inf"


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ({"llvm_version": "21.1.8"}, ANOTHER_LLVM),
        ({"llvm_version": None}, "llvm_version: expected 22.1.0, found unknown"),
        ({"problem": InliningForSize(math.inf)}, ANOTHER_LIMIT),
        ({"opt_level": "O3"}, "opt_level: expected each module's own, found O3"),
        (
            {"problem": InliningForSize(math.inf), "llvm_version": "21.1.8"},
            f"{ANOTHER_LLVM}; {ANOTHER_LIMIT}",
        ),
    ],
)
def test_what_does_not_go_together(tmp_path: Path, other: dict[str, str], message: str) -> None:
    one = write(tmp_path / "one", episode(source(1)))
    two = write(tmp_path / "two", episode(source(2)), **other)  # type: ignore[arg-type]
    with pytest.raises(DatasetError) as caught:
        Dataset.open(one, two)
    where = str(two / "part-00000.parquet")
    assert str(caught.value) == f"dataset {where!r}: {message} (allow_mixed takes them together)"
    assert caught.value.dataset == where
    mixed = Dataset.open(one, two, allow_mixed=True)
    assert mixed.differences == tuple(f"{where}: {each}" for each in message.split("; "))
    assert len(list(mixed.episodes())) == 2


def test_other_levels_of_the_modules(tmp_path: Path) -> None:
    one = write(tmp_path / "one", episode(source(1)), episode(source(2)))
    two = write(tmp_path / "two", episode(source(3, opt_level="O2")), episode(source(4)))
    message = f"dataset {str(two)!r}: levels of the modules: expected Oz, found O2, Oz"
    with pytest.raises(DatasetError) as caught:
        Dataset.open(one, two)
    assert str(caught.value).startswith(message)
    assert Dataset.open(two).row_count == 6  # a corpus may have several


def test_another_problem_is_refused_even_if_mixed(tmp_path: Path) -> None:
    one = write(tmp_path / "one", episode(source(1)))
    other = episode(source(2), problem=RegallocPriority)
    two = write(tmp_path / "two", other, problem=RegallocPriority())
    with pytest.raises(DatasetError) as caught:
        Dataset.open(one, two, allow_mixed=True)
    assert str(caught.value).endswith("problem: expected InliningForSize, found RegallocPriority")


def test_what_is_expected_of_it(tmp_path: Path) -> None:
    folder = write(tmp_path, episode(source()))
    where = str(folder / "part-00000.parquet")
    for expected, message in (
        ({"llvm_version": "23.0.0"}, "llvm_version: expected 23.0.0, found 22.1.0"),
        ({"problem": InliningForSize(3)}, "size_increase_threshold: expected 3.0, found 2.0"),
        ({"problem": RegallocPriority}, "problem: expected RegallocPriority, found"),
    ):
        with pytest.raises(DatasetError) as caught:
            Dataset.open(folder, **expected)
        assert str(caught.value).startswith(f"dataset {where!r}: {message}")


def test_nothing_there(tmp_path: Path) -> None:
    (tmp_path / "part-1.parquet").touch()
    for folder in (tmp_path, tmp_path / "none"):
        with pytest.raises(DatasetError) as caught:
            Dataset.open(folder)
        assert str(caught.value) == (
            f"dataset {str(folder)!r}: expected part-00000.parquet and so on in it, found none"
        )


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

"""Reading datasets: what was written comes back, and what does not go together is refused."""

from __future__ import annotations

import math
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlgo_gym.datasets import _dataset as reading
from mlgo_gym.datasets._dataset import Dataset
from mlgo_gym.datasets._episodes import Episode, Source
from mlgo_gym.datasets._header import DatasetHeader
from mlgo_gym.datasets._parts import MODULES_KEY
from mlgo_gym.datasets._writer import DatasetWriter
from mlgo_gym.errors import DatasetError, SpecError
from mlgo_gym.llvm._site import Call, Site
from mlgo_gym.problems._inlining_for_size import InliningForSize
from mlgo_gym.problems._problem import Problem
from mlgo_gym.problems._regalloc_eviction import RegallocEviction
from mlgo_gym.problems._regalloc_priority import RegallocPriority
from mlgo_gym.problems._registry import problems
from tests.datasets.samples import LLVM, NAMES, episode, episodes, same, source, write
from tests.generated import examples


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
                found = data.draw(st.lists(episodes(each, problem()), max_size=3))
                writer.add(each, found)
                expected += found
        dataset = Dataset.open(folder, problem=problem(), llvm_version=LLVM)
        read = list(dataset.episodes())
    assert len(read) == len(expected)
    assert all(map(same, read, expected))
    assert [entry.key for entry in dataset.modules] == [each.key for each in sources]
    assert dataset.row_count == sum(map(len, expected))


def test_a_file_that_lacks_a_column(tmp_path: Path) -> None:
    folder = write(tmp_path, episode(source(0)))
    (path,) = folder.glob("*.parquet")
    with pq.ParquetFile(path) as file:
        table, about = file.read(), {MODULES_KEY: file.metadata.metadata[MODULES_KEY]}
    table = table.drop_columns(["site"])
    with pq.ParquetWriter(path, table.schema) as writer:
        writer.write_table(table)
        writer.add_key_value_metadata(about)
    with pytest.raises(DatasetError, match=r"columns: expected \['site'\], found \['package', "):
        Dataset.open(folder)


def test_sites(tmp_path: Path) -> None:
    sites = tuple(Site("f", "g", (Call(n, "f", n, "a.c", 7, 1),) * n) for n in range(3))
    sited = replace(episode(source(0)), sites=sites)
    header = DatasetHeader.of(InliningForSize(), LLVM)
    with DatasetWriter(tmp_path, header) as writer:
        writer.add(sited.source, [sited])
        writer.add(source(1), [episode(source(1))])
    dataset = Dataset.open(tmp_path)
    assert [each.sites for each in dataset.episodes()] == [sites, ()]
    assert dataset.read(["site"])["site"].tolist() == [
        *(each.to_json() for each in sites),
        *3 * [""],
    ]
    with pytest.raises(SpecError, match=r"m0.c': sites: expected 3, or none, found 1$"):
        replace(sited, sites=sites[:1])


def test_a_site_that_is_none(tmp_path: Path) -> None:
    folder = write(tmp_path, episode(source(0)))
    (path,) = folder.glob("*.parquet")
    with pq.ParquetFile(path) as file:
        table, about = file.read(), {MODULES_KEY: file.metadata.metadata[MODULES_KEY]}
    words = pa.array(["x"] * 3).dictionary_encode()
    table = table.set_column(len(table.schema) - 1, table.schema.field("site"), words)
    with pq.ParquetWriter(path, table.schema) as writer:
        writer.write_table(table)
        writer.add_key_value_metadata(about)
    message = r"damaged: site: expected \[caller, callee, calls\], found 'x'$"
    with pytest.raises(DatasetError, match=message):
        list(Dataset.open(folder).episodes())


def test_episodes_over_several_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = [episode(source(number), size, seed=number) for number, size in enumerate((5, 3, 9, 1))]
    dataset = Dataset.open(write(tmp_path, *found))
    for rows in (1, 2, 3, 4, 5, 8, 18, 100):
        monkeypatch.setattr(reading, "_ROWS", rows)
        assert all(map(same, dataset.episodes(), found))


def test_batches_have_the_columns_as_arrays(tmp_path: Path) -> None:
    problem = RegallocEviction()
    found = episode(source(), 10, context="main", problem=problem)
    dataset = Dataset.open(write(tmp_path, found, problem=problem))
    batches = list(dataset.batches(4))
    assert [each.row_count for each in batches] == [4, 4, 2]
    batch = batches[1]
    assert batch.observations().tobytes() == found.observations[4:8].tobytes()
    expected = problem.layout.columns(found.observations[4:8])
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
    code = "import sys, mlgo_gym.datasets._logs, mlgo_gym.datasets._record; print(*sys.modules)"
    command = [sys.executable, "-W", "error", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "pyarrow" in done.stdout.split()
    assert "tensorflow" not in done.stdout


def test_several_folders(tmp_path: Path) -> None:
    one = write(tmp_path / "one", episode(source(1)))
    two = write(tmp_path / "two", episode(source(2)))
    dataset = Dataset.open(one, two / "part-00000.parquet", problem=InliningForSize.name)
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
    other = episode(source(2), problem=RegallocPriority())
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
        ({"problem": RegallocPriority.name}, "problem: expected RegallocPriority, found"),
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

"""Writing datasets: whole parts or nothing, whatever interrupts."""

from __future__ import annotations

import io
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from mlgo_gym.base._tensor_spec import TensorSpec
from mlgo_gym.datasets import _parts
from mlgo_gym.datasets._dataset import Dataset
from mlgo_gym.datasets._header import DatasetHeader
from mlgo_gym.datasets._logs import LogEpisodes, export_log
from mlgo_gym.datasets._parts import opened
from mlgo_gym.datasets._writer import DatasetWriter
from mlgo_gym.errors import DatasetError, UsageError
from mlgo_gym.problems._inlining_for_size import InliningForSize
from mlgo_gym.problems._problem import Problem
from mlgo_gym.problems._regalloc_priority import RegallocPriority
from mlgo_gym.stream._training_log import Header
from tests.datasets.samples import episode, same, source

HEADER = DatasetHeader.of(InliningForSize(), "22.1.0")

WRITES_FOR_EVER = """
import itertools, sys
from pathlib import Path
from tests.datasets.test_writer import HEADER, DatasetWriter, episode, source
with DatasetWriter(Path(sys.argv[1]), HEADER, max_part_bytes=2000) as writer:
    for number in itertools.count():
        writer.add(source(number), [episode(source(number), 4, seed=number)])
        print(number, flush=True)
"""

FILLS_THE_DISK = """
import resource, sys
from pathlib import Path
from mlgo_gym.errors import DatasetError
from tests.datasets.test_writer import HEADER, DatasetWriter, episode, source
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
try:
    with DatasetWriter(Path(sys.argv[1]), HEADER, max_part_bytes=2000) as writer:
        for number in range(3):
            origin = source(number)
            writer.add(origin, [episode(origin, 4 if number < 2 else 1000)])
except DatasetError as error:
    print(error, len(writer.keys))
"""


def add(writer: DatasetWriter, *numbers: int) -> None:
    for number in numbers:
        origin = source(number)
        writer.add(origin, [episode(origin, number + 1, seed=number)])


def names(folder: Path) -> list[str]:
    return sorted(each.name for each in folder.iterdir())


def modules(folder: Path) -> list[str]:
    return [each.module for each in Dataset.open(folder).modules]


def test_parts_are_bounded(tmp_path: Path) -> None:
    with DatasetWriter(tmp_path / "new" / "set", HEADER, max_part_bytes=2000) as writer:
        add(writer, *range(10))
    dataset = Dataset.open(tmp_path / "new" / "set", problem=InliningForSize())
    row_bytes = 39 * 8
    assert [part.rows * row_bytes for part in dataset.parts] == [3120, 3432, 2184, 2496, 2808, 3120]
    assert dataset.row_count == 55
    assert all(
        same(found, episode(source(number), number + 1, seed=number))
        for number, found in enumerate(dataset.episodes())
    )


def test_long_names_of_contexts_are_in_row_groups_that_can_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader takes no row group above a limit, and names may be long."""
    monkeypatch.setattr(_parts, "_ROW_GROUP_TEXT", 1500)
    contexts = [f"{index}{'x' * 700}" for index in range(3)] + ["short", "names"]
    with DatasetWriter(tmp_path, HEADER) as writer:
        writer.add(source(), [episode(source(), context=context) for context in contexts])
    with opened(tmp_path / "part-00000.parquet") as file:
        rows = [file.metadata.row_group(number).num_rows for number in range(file.num_row_groups)]
    assert rows == [3, 3, 9]
    assert [each.context for each in Dataset.open(tmp_path).episodes()] == contexts


def test_a_part_is_written_when_it_is_old(tmp_path: Path) -> None:
    """As it is; how long it took to fill does not show in the end."""
    for name, age_s in (("slow", 0.0), ("fast", 1e6)):
        how = {"max_part_bytes": 2000, "max_part_age_s": age_s}
        with DatasetWriter(tmp_path / name, HEADER, **how) as writer:  # type: ignore[arg-type]
            for number in range(7):
                add(writer, number)
                expected = [f"m{each}.c" for each in range(number + 1)]
                assert name == "fast" or modules(tmp_path / name) == expected
    slow, fast = (
        {each.name: each.read_bytes() for each in (tmp_path / folder).iterdir()}
        for folder in ("slow", "fast")
    )
    assert slow == fast
    assert len(fast) == 3


def test_what_was_written_early_stays_where_the_whole_part_cannot_be(tmp_path: Path) -> None:
    with DatasetWriter(tmp_path, HEADER, max_part_age_s=0) as writer:
        add(writer, 0)
        path = tmp_path / "part-00000.parquet"
        aside = path.rename(tmp_path / "aside")
        path.mkdir()
        with pytest.raises(DatasetError, match="expected a file or nothing there"):
            add(writer, 1)
        path.rmdir()
        aside.rename(path)
        assert writer.keys == {source(0).key}
        add(writer, 1)
    assert names(tmp_path) == ["part-00000.parquet", "part-00001.parquet"]
    assert modules(tmp_path) == ["m0.c", "m1.c"]


def test_it_goes_on(tmp_path: Path) -> None:
    with DatasetWriter(tmp_path, HEADER) as writer:
        add(writer, 0)
    with DatasetWriter(tmp_path, HEADER) as writer:
        assert writer.keys == {source(0).key}
        add(writer, 1)
    assert names(tmp_path) == ["part-00000.parquet", "part-00001.parquet"]
    assert modules(tmp_path) == ["m0.c", "m1.c"]


def test_it_goes_on_after_the_last_number(tmp_path: Path) -> None:
    with DatasetWriter(tmp_path, HEADER) as writer:
        add(writer, 0)
    (tmp_path / "part-00000.parquet").rename(tmp_path / "part-00041.parquet")
    with DatasetWriter(tmp_path, HEADER) as writer:
        add(writer, 1)
    assert names(tmp_path) == ["part-00041.parquet", "part-00042.parquet"]


def test_modules_without_decisions_are_remembered(tmp_path: Path) -> None:
    with DatasetWriter(tmp_path, HEADER) as writer:
        writer.add(source(7), [])
    dataset = Dataset.open(tmp_path)
    assert (dataset.row_count, list(dataset.episodes()), modules(tmp_path)) == (0, [], ["m7.c"])
    with DatasetWriter(tmp_path, HEADER) as writer:
        assert source(7).key in writer.keys


def test_an_exception_keeps_what_was_added(tmp_path: Path) -> None:
    def interrupted() -> None:
        with DatasetWriter(tmp_path, HEADER) as writer:
            add(writer, 0, 1)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert modules(tmp_path) == ["m0.c", "m1.c"]


def test_nothing_added_is_nothing_written(tmp_path: Path) -> None:
    with DatasetWriter(tmp_path, HEADER):
        pass
    assert names(tmp_path) == []


@pytest.mark.e2e
def test_a_killed_writer_leaves_whole_parts(tmp_path: Path) -> None:
    command = [sys.executable, "-c", WRITES_FOR_EVER, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if int(line) >= 40:
                process.send_signal(signal.SIGKILL)
                break
    (tmp_path / ".part-00099.parquet.123.partial").write_bytes(b"cut off")
    there = [each.source.key for each in Dataset.open(tmp_path).episodes()]
    assert len(there) >= 38
    with DatasetWriter(tmp_path, HEADER, max_part_bytes=2000) as writer:
        assert writer.keys == set(there)
        add(writer, 1000)
    assert all(name.startswith("part-") for name in names(tmp_path))
    assert modules(tmp_path)[-1] == "m1000.c"


def test_a_full_disk(tmp_path: Path) -> None:
    command = [sys.executable, "-W", "error", "-c", FILLS_THE_DISK, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    expected = f"dataset '{tmp_path}/part-00001.parquet': cannot be written: File too large 2\n"
    assert (done.returncode, done.stderr, done.stdout) == (0, "", expected)
    assert names(tmp_path) == ["part-00000.parquet"]
    assert modules(tmp_path) == ["m0.c", "m1.c"]


def test_one_writer_at_a_time(tmp_path: Path) -> None:
    with DatasetWriter(tmp_path, HEADER), pytest.raises(DatasetError) as caught:
        DatasetWriter(tmp_path, HEADER)
    assert str(caught.value) == f"dataset {str(tmp_path)!r}: another process is writing there"
    with DatasetWriter(tmp_path, HEADER):
        pass


@pytest.mark.parametrize(
    ("header", "message"),
    [
        (
            DatasetHeader.of(InliningForSize(), "21.1.8"),
            "llvm_version: expected 21.1.8, found 22.1.0",
        ),
        (
            DatasetHeader.of(InliningForSize(float("inf")), "22.1.0"),
            "size_increase_threshold: expected inf, found 2.0",
        ),
        (
            DatasetHeader.of(InliningForSize(), "22.1.0", opt_level="O3"),
            "opt_level: expected O3, found each module's own",
        ),
        (
            DatasetHeader.of(RegallocPriority(), "22.1.0"),
            "problem: expected RegallocPriority, found InliningForSize",
        ),
        (
            DatasetHeader(
                InliningForSize().layout, InliningForSize().settings(), "22.1.0", score=None
            ),
            "score: expected none, found reward (1,)",
        ),
    ],
)
def test_another_dataset_is_refused(header: DatasetHeader, message: str, tmp_path: Path) -> None:
    with DatasetWriter(tmp_path, HEADER) as writer:
        add(writer, 0)
    with pytest.raises(DatasetError) as caught:
        DatasetWriter(tmp_path, header)
    assert str(caught.value) == f"dataset '{tmp_path}/part-00000.parquet': {message}"


def test_a_damaged_part_is_refused(tmp_path: Path) -> None:
    with DatasetWriter(tmp_path, HEADER) as writer:
        add(writer, 0)
    path = tmp_path / "part-00000.parquet"
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(DatasetError, match="part-00000.parquet': expected a whole Parquet file"):
        DatasetWriter(tmp_path, HEADER)


def test_a_folder_that_is_a_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.touch()
    with pytest.raises(DatasetError) as caught:
        DatasetWriter(path, HEADER)
    assert str(caught.value) == f"dataset {str(path)!r}: cannot be written: File exists"


def test_misuse(tmp_path: Path) -> None:
    where = f"dataset {str(tmp_path)!r}: "
    other = episode(source(1), problem=RegallocPriority())
    with DatasetWriter(tmp_path, HEADER) as writer:
        add(writer, 0)
        with pytest.raises(UsageError, match="is there already"):
            add(writer, 0)
        with pytest.raises(UsageError, match="expected an episode of"):
            writer.add(source(1), [episode(source(2))])
        with pytest.raises(UsageError, match="expected an episode of"):
            writer.add(source(1), [other])
    with pytest.raises(UsageError) as caught:
        add(writer, 1)
    assert str(caught.value) == f"{where}closed"
    writer.close()


def more(spec: TensorSpec) -> Problem:
    """The problem as an LLVM describes it that sends one tensor besides."""
    header = Header((*InliningForSize().layout.specs, spec), advice=InliningForSize.advice)
    problem = InliningForSize()
    return problem.with_layout(problem.recorded_layout(header))


def test_the_first_decisions_say_what_there_is(tmp_path: Path) -> None:
    """What asks nothing says nothing, before them or behind; and so when it goes on."""
    problem = more(TensorSpec("new", "float", (2,)))
    for numbers in ((1, 2, 3), (4, 5)):
        with DatasetWriter(tmp_path, HEADER) as writer:
            for number in numbers:
                rows = [episode(source(number), 2, problem=problem)] if number in {2, 5} else []
                writer.add(source(number), rows)
                writer.flush()
    assert len(names(tmp_path)) == 5
    sent = [part.header.layout.specs for part in Dataset.open(tmp_path).parts]
    assert sent == [InliningForSize().layout.specs, *[problem.layout.specs] * 4]
    dataset = Dataset.open(tmp_path, problem=InliningForSize())
    assert dataset.layout.specs == problem.layout.specs
    assert [len(each) for each in dataset.episodes()] == [2, 2]
    assert dataset.read(["new"])["new"].shape == (4, 2)
    file = io.BytesIO()
    assert export_log(dataset, file) == 4
    file.seek(0)
    assert LogEpisodes(file, "log").layout.specs == problem.layout.specs


def test_decisions_of_other_tensors(tmp_path: Path) -> None:
    new = TensorSpec("new", "float", (2,))
    with DatasetWriter(tmp_path, HEADER) as writer:
        writer.add(source(0), [episode(source(0), problem=more(new))])
        for problem, found in (
            (InliningForSize(), "none of them"),
            (more(replace(new, shape=(3,))), "['new float (3,)']"),
        ):
            with pytest.raises(UsageError) as caught:
                writer.add(source(1), [episode(source(1), problem=problem)])
            assert str(caught.value) == (
                f"dataset {str(tmp_path)!r}: module 'm1.c': features: expected ['new float (2,)'], "
                f"found {found}"
            )
    described = more(replace(new, name="newer"))
    with pytest.raises(DatasetError) as error:
        DatasetWriter(tmp_path, DatasetHeader.of(described, "22.1.0"))
    message = "features: expected ['newer float (2,)'], found ['new float (2,)']"
    assert str(error.value).startswith(f"dataset '{tmp_path}/part-00000.parquet': {message}")

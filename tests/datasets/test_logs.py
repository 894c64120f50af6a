"""Training logs: read, written, and equal byte for byte."""

from __future__ import annotations

import io
import tempfile
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlgo_gym.base._tensor_spec import TensorSpec
from mlgo_gym.corpus._corpus import Corpus
from mlgo_gym.datasets import _logs
from mlgo_gym.datasets._dataset import Dataset
from mlgo_gym.datasets._logs import LogEpisodes, export_log, open_recording
from mlgo_gym.datasets._writer import DatasetWriter
from mlgo_gym.errors import DatasetError, TrainingLogError
from mlgo_gym.problems._inlining_for_size import InliningForSize
from mlgo_gym.problems._problem import Problem
from mlgo_gym.problems._regalloc_priority import RegallocPriority
from mlgo_gym.problems._registry import problems
from mlgo_gym.rollout._log import RolloutLog
from mlgo_gym.rollout._rollout import rollout
from mlgo_gym.stream._training_log import Header, TrainingLogWriter
from tests.generated import examples

REWARD = TensorSpec("reward", "float", (1,))
NAMES = st.text(max_size=5).filter(lambda text: text.isprintable())
PRIORITY = (*RegallocPriority().layout.specs, RegallocPriority.advice)
ROW_BYTES = Header(PRIORITY).size_bytes


def there_and_back(log: bytes) -> tuple[Dataset, bytes]:
    """A log, read into a dataset and written out of it."""
    out = io.BytesIO()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "in.log"
        path.write_bytes(log)
        recording = open_recording(path, "pack", "22.1.0")
        with DatasetWriter(Path(folder) / "set", recording.header) as writer:
            recording.write(writer)
        dataset = Dataset.open(Path(folder) / "set", llvm_version="22.1.0")
        export_log(dataset, out)
    return dataset, out.getvalue()


@st.composite
def logs(draw: st.DrawFn) -> bytes:
    """A log of allocation priorities: any bytes, contexts that come back, scores or none."""
    score = draw(st.sampled_from([None, REWARD, TensorSpec("delta", "float", (1, 1))]))
    file = io.BytesIO()
    writer = TrainingLogWriter(file, Header(PRIORITY, score))
    for name in draw(st.lists(NAMES, max_size=6)):
        writer.start_context(name)
        has_outcomes = score is not None and draw(st.booleans())
        for _ in range(draw(st.integers(1, 3))):
            writer.log_observation(draw(st.binary(min_size=ROW_BYTES, max_size=ROW_BYTES)))
            if has_outcomes:
                raw = np.frombuffer(draw(st.binary(min_size=4, max_size=4)), np.float32)
                writer.log_outcome(raw)
    return file.getvalue()


def test_names_of_contexts_are_not_kept(tmp_path: Path) -> None:
    """A log has any number of them, each up to the length of a line."""
    path = tmp_path / "log"
    with path.open("wb") as file:
        writer = TrainingLogWriter(file, Header(PRIORITY))
        for number in range(50):
            writer.start_context(f"{number}" + "a" * 1_000_000)
            writer.log_observation(bytes(ROW_BYTES))
    tracemalloc.start()
    try:
        with path.open("rb") as stream:
            assert sum(map(len, LogEpisodes(stream, "log"))) == 50
        assert tracemalloc.get_traced_memory()[1] < 20_000_000
    finally:
        tracemalloc.stop()


@examples(20)
@given(logs())
def test_any_log_comes_back(log: bytes) -> None:
    if log.count(b"\n") == 1:
        return  # no episode: nothing to read
    assert there_and_back(log)[1] == log


@pytest.mark.parametrize("problem", problems().values())
def test_logs_of_rollouts_come_back(problem: type[Problem], small: Corpus) -> None:
    name = tuple(problem.policies)[-1]
    policies = {name: problem.policy(name)}
    file = io.BytesIO()
    log = RolloutLog(file, problem())
    for report in rollout(small, policies, problem(), keep_decisions=True):
        log.write(report)
    dataset, found = there_and_back(file.getvalue())
    assert found == file.getvalue()
    assert dataset.layout == problem().layout
    assert dataset.row_count > 10
    modules = {entry.module for entry in dataset.modules} - {""}
    assert modules == (set(small) if problem is InliningForSize else set())


def log_of(*contexts: tuple[str, int], score: TensorSpec | None = None) -> bytes:
    """A log with some decisions in each context; every byte of the n-th is n."""
    file = io.BytesIO()
    writer = TrainingLogWriter(file, Header(PRIORITY, score))
    for name, count in contexts:
        writer.start_context(name)
        for number in range(count):
            writer.log_observation(bytes([number]) * ROW_BYTES)
            if score is not None:
                writer.log_outcome(number)
    return file.getvalue()


def read(log: bytes) -> list[tuple[str, int]]:
    return [(each.context, len(each)) for each in LogEpisodes(io.BytesIO(log), "x")]


def test_contexts_are_episodes() -> None:
    assert read(log_of(("f", 2), ("f", 1), ("g", 1), ("", 1), ("f", 3))) == [
        ("f", 2), ("f", 1), ("g", 1), ("", 1), ("f", 3),
    ]  # fmt: skip


def test_empty_contexts_are_left_out() -> None:
    dataset, found = there_and_back(log_of(("f", 2), ("empty", 0), ("g", 1), score=REWARD))
    assert found == log_of(("f", 2), ("g", 1), score=REWARD)
    assert [each.reward for each in LogEpisodes(io.BytesIO(found), "x")] == [1, 0]
    assert dataset.header.settings is None


def test_contexts_of_several_packages_name_theirs(tmp_path: Path) -> None:
    folders = []
    for package in ("zlib", "lua"):
        path = tmp_path / f"{package}.log"
        path.write_bytes(log_of(("a.c:f", 2), ("a.c:g", 1)))
        recording = open_recording(path, package)
        with DatasetWriter(tmp_path / package, recording.header) as writer:
            recording.write(writer)
        folders.append(tmp_path / package)
    file = io.BytesIO()
    export_log(Dataset.open(*folders), file)
    assert read(file.getvalue()) == [
        ("zlib/a.c:f", 2), ("zlib/a.c:g", 1), ("lua/a.c:f", 2), ("lua/a.c:g", 1),
    ]  # fmt: skip


def test_other_scores_are_no_rewards() -> None:
    log = log_of(("f", 3), score=TensorSpec("delta", "float", (1,)))
    (found,) = LogEpisodes(io.BytesIO(log), "x")
    assert found.outcomes is not None
    assert found.outcomes.tolist() == [0, 1, 2]
    assert np.isnan(found.reward)


def with_header(*features: TensorSpec, score: TensorSpec | None = None) -> bytes:
    return f"{Header(features, score).to_json()}\n".encode()


@pytest.mark.parametrize(
    ("log", "message"),
    [
        (with_header(*PRIORITY[:-1]), "training log: expected one of inlining_decision, "
         "index_to_evict, priority as the last feature, found ['li_size', 'stage', 'weight']"),
        (with_header(*PRIORITY[1:]), "training log: feature 'li_size': expected int64_t (1,), "
         "found none"),
        (with_header(TensorSpec("stage", "float", (1,)), PRIORITY[0], *PRIORITY[2:]),
         "training log: feature 'stage': expected int64_t (1,), found float (1,)"),
        (with_header(PRIORITY[-1]), "training log: expected features, found only 'priority'"),
        (with_header(*PRIORITY, score=TensorSpec("reward", "int64_t", (1,))),
         "score 'reward': expected one float, found int64_t (1,)"),
        (log_of(("f", 2)).replace(b'{"observation":1}', b'{"observation":3}'),
         "context 'f': expected observation 1, found 3"),
        (log_of(("f", 2), score=REWARD).replace(b'{"outcome":0}\n\0\0\0\0\n', b""),
         "context 'f': expected 2 outcomes or none, found 1"),
        (log_of(("f", 1), score=REWARD).replace(b'{"outcome":0}\n\0\0\0\0\n',
                                                b'{"outcome":0}\n\0\0\0\0\n' * 2),
         "context 'f': expected 1 outcomes or none, found 2"),
    ],
)  # fmt: skip
def test_logs_that_cannot_be_used(log: bytes, message: str) -> None:
    with pytest.raises(DatasetError) as caught:
        read(log)
    assert str(caught.value) == f"dataset 'x': {message}"


def test_an_episode_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    size = sum(spec.size_bytes for spec in PRIORITY)
    monkeypatch.setattr(_logs, "MAX_EPISODE_BYTES", 3 * size)
    assert read(log_of(("f", 3), ("g", 3))) == [("f", 3), ("g", 3)]
    with pytest.raises(DatasetError) as caught:
        read(log_of(("f", 3), ("g", 4)))
    problem = f"expected an episode of at most {3 * size} bytes, found more"
    assert str(caught.value) == f"dataset 'x': context 'g': {problem}"


@pytest.mark.parametrize(
    ("log", "message"),
    [
        (b"", "training log, byte 0: expected a header, found an empty stream"),
        (log_of(("f", 2))[:-3], "training log, byte "),
        (b"no log\n", "training log, byte 0: expected a line of JSON, found b'no log"),
    ],
)
def test_logs_that_are_broken(log: bytes, message: str) -> None:
    with pytest.raises(TrainingLogError) as caught:
        read(log)
    assert str(caught.value).startswith(message)


def test_parts_of_different_scores_make_no_log(tmp_path: Path) -> None:
    for name, score in (("one", REWARD), ("two", None)):
        path = tmp_path / f"{name}.log"
        path.write_bytes(log_of(("f", 1), score=score))
        recording = open_recording(path)
        with DatasetWriter(tmp_path / name, recording.header) as writer:
            recording.write(writer)
    dataset = Dataset.open(tmp_path / "one", tmp_path / "two")
    with pytest.raises(DatasetError, match=r"score: expected reward \(1,\), found none"):
        export_log(dataset, io.BytesIO())

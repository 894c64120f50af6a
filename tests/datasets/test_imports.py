"""Traces and training logs as files: whole in a dataset, once, or not there."""

from __future__ import annotations

from pathlib import Path

import pytest

from mlgo_gym.corpus._corpus import Corpus, Module
from mlgo_gym.datasets._dataset import Dataset
from mlgo_gym.datasets._header import DatasetHeader
from mlgo_gym.datasets._logs import LogFile, TraceFile, open_recording
from mlgo_gym.datasets._writer import DatasetWriter
from mlgo_gym.errors import DatasetError, TraceError
from mlgo_gym.llvm._compiler import Compiler
from mlgo_gym.problems._inlining_for_size import InliningForSize, always, never
from mlgo_gym.rollout._replay import record
from mlgo_gym.rollout._trace import Trace
from tests.datasets.test_logs import REWARD, log_of
from tests.llvm.test_ir2vec import Besides


def test_traces(compiler: Compiler, small: Corpus, tmp_path: Path) -> None:
    for name, policy in (("never", never), ("always", always)):
        trace = record(
            compiler, small["frame_stream.c"], InliningForSize(), policy, keep_observations=True
        )
        trace.save(tmp_path / f"{name}.trace")
    recordings = [open_recording(tmp_path / f"{name}.trace", "p") for name in ("never", "always")]
    with DatasetWriter(tmp_path / "set", recordings[0].header) as writer:
        for each in recordings:
            assert isinstance(each, TraceFile)
            assert not each.is_in(writer)
            assert each.write(writer) > 10
            assert each.is_in(writer)
    dataset = Dataset.open(tmp_path / "set", problem=InliningForSize())
    assert dataset.header.llvm_version == trace.llvm_version
    actions = [set(each.actions.tolist()) for each in dataset.episodes()]
    assert actions == [{0}, {1}]
    assert len({entry.policy for entry in dataset.modules}) == 2


def test_what_asks_nothing_goes_with_all(compiler: Compiler, small: Corpus, tmp_path: Path) -> None:
    """A trace of no decision does not say what LLVM sends."""
    silent = Module.from_ir("define void @f() { ret void }", "silent")
    paths = [tmp_path / "silent.trace", tmp_path / "asks.trace"]
    for path, module in zip(paths, (silent, small["frame_stream.c"]), strict=True):
        record(compiler, module, Besides(), never, keep_observations=True).save(path)
    recordings = [open_recording(path) for path in paths]
    for name, order in (("one", recordings), ("two", recordings[::-1])):
        with DatasetWriter(tmp_path / name, order[0].header) as writer:
            for each in order:
                assert writer.differences(each.header, of_decisions=each.decisions > 0) == []
                each.write(writer)
            plain = DatasetHeader.of(InliningForSize(), Trace.load(paths[0]).llvm_version)
            assert [each.partition(":")[0] for each in writer.differences(plain)] == ["features"]
        (episode,) = Dataset.open(tmp_path / name).episodes()
        assert episode.observations["callee_embedding"].shape == (recordings[1].decisions, 80)


def test_a_log_is_imported_once(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    path.write_bytes(log_of(("f", 2), ("g", 1), score=REWARD))
    recording = LogFile.open(path, "p", "22.1.0")
    with DatasetWriter(tmp_path / "set", recording.header) as writer:
        assert not recording.is_in(writer)
        assert recording.write(writer) == 3
    with DatasetWriter(tmp_path / "set", recording.header) as writer:
        assert recording.is_in(writer)
    dataset = Dataset.open(tmp_path / "set", llvm_version="22.1.0")
    assert [(each.context, len(each)) for each in dataset.episodes()] == [("f", 2), ("g", 1)]
    assert {each.source.package for each in dataset.episodes()} == {"p"}


def test_an_import_that_was_interrupted(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    path.write_bytes(log_of(("f", 2), ("g", 1)))
    recording = LogFile.open(path)
    with DatasetWriter(tmp_path / "set", recording.header, max_part_bytes=1) as writer:
        recording.write(writer)
    parts = sorted((tmp_path / "set").iterdir())
    assert len(parts) == 3
    parts[2].unlink()
    with DatasetWriter(tmp_path / "set", recording.header) as writer:
        with pytest.raises(DatasetError) as caught:
            recording.is_in(writer)
        assert str(caught.value) == (
            f"dataset {str(tmp_path / 'set')!r}: has some of {str(path)!r}, and not all: an import "
            "was interrupted; start in another folder"
        )


def test_nothing_of_a_broken_log_is_taken(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    path.write_bytes(log_of(("f", 2), ("g", 1))[:-3])
    with pytest.raises(DatasetError, match="training log, byte"):
        open_recording(path)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    path = tmp_path / "none"
    with pytest.raises(DatasetError) as caught:
        open_recording(path)
    assert str(caught.value) == (
        f"dataset {str(path)!r}: cannot be read: No such file or directory"
    )
    path.write_bytes(b'{"trace": 1, "cut')
    with pytest.raises(TraceError, match="expected a trace's header"):
        open_recording(path)

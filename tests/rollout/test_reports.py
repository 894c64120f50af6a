"""Reports of what failed: no reward, no decisions in a log."""

from __future__ import annotations

import contextlib
import io
from dataclasses import replace

import pytest

from mlgo_gym.base._tensor_spec import TensorSpec
from mlgo_gym.corpus._corpus import Corpus
from mlgo_gym.errors import InputError, TrainingLogError
from mlgo_gym.problems._inlining_for_size import InliningForSize, never
from mlgo_gym.rollout._log import RolloutLog
from mlgo_gym.rollout._rollout import Decision, rollout, without_frames
from mlgo_gym.stream._training_log import Header, Observation, TrainingLogReader

INLINING = InliningForSize()


def test_a_policy_that_kills_the_compilation(sample: Corpus) -> None:
    """Its module has a baseline and no reward; the log of it is a header alone."""
    modules = sample.only(("frame_stream.c",))
    (report,) = rollout(modules, {"never": never}, INLINING, timeout_s=60)
    (attempt,) = report.attempts
    reward = report.reward(attempt)
    assert reward is not None
    assert reward < 0
    failed = replace(attempt, result=None, error=InputError("killed"))
    assert report.rewards(failed) == {}
    assert report.reward(failed) is None
    file = io.BytesIO()
    with RolloutLog(file, INLINING) as log:
        assert log.write(replace(report, attempts=(failed,))) == 0
    file.seek(0)
    assert list(TrainingLogReader(file)) == []


def test_other_tensors_than_before(sample: Corpus) -> None:
    """A log has one header: that of the first decisions, whatever else LLVM sent with them."""
    (report,) = rollout(
        sample.only(("frame_stream.c",)), {"never": never}, INLINING, keep_decisions=True
    )
    (attempt,) = report.attempts
    (decision, *_) = attempt.decisions
    specs = InliningForSize().layout.specs

    def with_new(spec: TensorSpec) -> Decision:
        header = Header((*specs, spec), advice=InliningForSize.advice)
        payload = decision.payload + bytes(range(spec.size_bytes))
        return replace(decision, sent=Observation(header, "", 0, payload))

    one, other = TensorSpec("new", "int32_t", (2,)), TensorSpec("new", "int32_t", (1,))
    file = io.BytesIO()
    with RolloutLog(file, INLINING) as log:
        log.write(replace(report, attempts=(replace(attempt, decisions=()),)))
        log.write(replace(report, attempts=(replace(attempt, decisions=(with_new(one),)),)))
        with pytest.raises(TrainingLogError) as caught:
            log.write(replace(report, attempts=(replace(attempt, decisions=(with_new(other),)),)))
    assert str(caught.value) == (
        "training log: module 'frame_stream.c': features: expected ['new int32_t (2,)'], found "
        "['new int32_t (1,)']"
    )
    file.seek(0)
    reader = TrainingLogReader(file)
    assert reader.header.features == (*specs, one, InliningForSize.advice)
    (record,) = reader
    assert record.observation.payload == decision.payload + bytes(range(8)) + decision.advice


def test_errors_that_lead_back_to_themselves_lose_their_frames() -> None:
    first, second = InputError("first"), InputError("second")
    for each in (first, second):
        with contextlib.suppress(InputError):
            raise each
    first.__cause__, second.__context__ = second, first
    assert without_frames(first) is first
    assert first.__traceback__ is second.__traceback__ is None

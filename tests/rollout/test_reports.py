"""Reports of what failed: no reward, no decisions in a log."""

from __future__ import annotations

import io
from dataclasses import replace

from mlgo_gym.corpus._corpus import Corpus
from mlgo_gym.problems._inlining_for_size import InliningForSize, never
from mlgo_gym.rollout._rollout import RolloutLog, rollout
from mlgo_gym.stream._training_log import TrainingLogReader

INLINING = InliningForSize()


def test_a_policy_that_kills_the_compilation(sample: Corpus) -> None:
    """Its module has a baseline and no reward; the log of it is a header alone."""
    modules = sample.only(("frame_stream.c",))
    (report,) = rollout(modules, {"never": never}, INLINING, timeout_s=60)
    (attempt,) = report.attempts
    reward = report.reward(attempt)
    assert reward is not None
    assert reward < 0
    failed = replace(attempt, result=None, error="killed")
    assert report.rewards(failed) == {}
    assert report.reward(failed) is None
    file = io.BytesIO()
    assert RolloutLog(file, INLINING).write(replace(report, attempts=(failed,))) == 0
    file.seek(0)
    assert list(TrainingLogReader(file)) == []

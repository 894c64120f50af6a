"""Episodes: what fits together, and what traces and reports of rollouts become."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import pytest

from mlgo_gym.corpus._corpus import Corpus
from mlgo_gym.datasets._episodes import (
    Episode,
    Source,
    episodes_of_report,
    episodes_of_trace,
    settings_text,
)
from mlgo_gym.errors import SpecError, TraceError
from mlgo_gym.llvm._compiler import Compiler
from mlgo_gym.problems._inlining_for_size import InliningForSize
from mlgo_gym.problems._regalloc_eviction import RegallocEviction
from mlgo_gym.rollout._replay import record
from mlgo_gym.rollout._rollout import rollout
from mlgo_gym.rollout._trace import Trace
from tests.datasets.samples import episode, source

GOOD = episode(source(), context="main")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"observations": GOOD.observations[:0]}, "decisions: expected at least 1, found 0"),
        ({"observations": GOOD.actions}, "observations: expected [('sroa_savings', '<i8'), "),
        ({"actions": GOOD.actions[:2]}, "actions: expected int64 (3,), found int64 (2,)"),
        ({"actions": np.ones(3, np.int32)}, "actions: expected int64 (3,), found int32 (3,)"),
        ({"outcomes": np.ones(3)}, "outcomes: expected float32 (3,), found float64 (3,)"),
        ({"labels": {"gain": np.ones(3)}}, "labels: expected one of saved_bytes, "
         "saved_linked_bytes, sample_weight, saved_share, found 'gain'"),
        ({"labels": {"saved_bytes": np.ones(3, int)}}, "saved_bytes: expected float64 (3,), "
         "found int64 (3,)"),
    ],
)  # fmt: skip
def test_what_does_not_fit(change: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError) as caught:
        dataclasses.replace(GOOD, **change)
    assert str(caught.value).startswith(f"episode 'main': {message}")


def test_texts_must_be_writable() -> None:
    with pytest.raises(SpecError) as caught:
        Source(module="\ud800")
    assert str(caught.value) == "episode: module: expected text, found '\\ud800'"
    with pytest.raises(SpecError, match="episode: context: expected text, found"):
        dataclasses.replace(GOOD, context="\udfff")


def test_labels_that_are_not_there() -> None:
    assert np.isnan(GOOD.label("sample_weight")).all()
    assert GOOD.label("saved_bytes") is GOOD.labels["saved_bytes"]


def test_equal_settings_have_equal_text() -> None:
    assert settings_text({"b": (1, 2), "a": None}) == settings_text({"a": None, "b": [1, 2]})


def trace(compiler: Compiler, small: Corpus, *, keep_observations: bool = True) -> Trace:
    policy = InliningForSize.policy("random", 1)
    return record(
        compiler,
        small["json_write.c"],
        InliningForSize(),
        policy,
        keep_observations=keep_observations,
    )


def test_a_trace_with_observations(compiler: Compiler, small: Corpus) -> None:
    recorded = trace(compiler, small)
    origin, (found,) = episodes_of_trace(recorded, package="sample", policy="random 1")
    assert origin.key == found.source.key
    assert (origin.package, origin.module, origin.policy) == ("sample", "json_write.c", "random 1")
    assert origin.module_sha256 == small["json_write.c"].sha256
    assert origin.opt_level == "Oz"
    assert found.observations.tobytes() == recorded.observations
    assert found.actions.tobytes() == recorded.advice
    assert (found.score, math.isnan(found.reward)) == (recorded.text_size_bytes, True)


def test_labels_of_some_decisions(compiler: Compiler, small: Corpus) -> None:
    recorded = trace(compiler, small)
    saved = np.full(recorded.decisions, np.nan)
    saved[::3] = -7.0
    _, (labelled,) = episodes_of_trace(recorded, labels={"saved_bytes": saved})
    assert np.array_equal(labelled.label("saved_bytes"), saved, equal_nan=True)


def test_traces_that_are_no_data(compiler: Compiler, small: Corpus) -> None:
    bare = trace(compiler, small, keep_observations=False)
    with pytest.raises(TraceError) as caught:
        episodes_of_trace(bare)
    assert str(caught.value) == (
        "trace 'json_write.c': observations: expected the 39 features of InliningForSize, "
        "found none: record them with --observations"
    )
    other = dataclasses.replace(trace(compiler, small), settings=RegallocEviction().settings())
    with pytest.raises(TraceError, match=r"expected the 21 features .*, found \['sroa_savings'"):
        episodes_of_trace(other)
    with pytest.raises(TraceError, match="problem: expected one of InliningForSize"):
        episodes_of_trace(dataclasses.replace(bare, settings={"problem": "Chess"}))


def test_a_trace_without_decisions(compiler: Compiler, small: Corpus) -> None:
    bare = trace(compiler, small, keep_observations=False)
    origin, found = episodes_of_trace(dataclasses.replace(bare, advice=b""))
    assert (origin.module, found) == ("json_write.c", ())


def test_a_report_of_the_inliner(small: Corpus) -> None:
    policies = {"random": InliningForSize.policy("random", 1)}
    (report,) = rollout(
        small.only(["frame_stream.c"]), policies, InliningForSize(), keep_decisions=True
    )
    (attempt,) = report.attempts
    (found,) = episodes_of_report(report, attempt, InliningForSize(), source())
    assert attempt.result is not None
    assert report.baseline is not None
    assert len(found) == attempt.result.decisions
    assert found.reward == report.reward(attempt)
    assert (found.score, found.baseline_score) == (attempt.result.score, report.baseline.score)
    assert found.outcomes is not None
    assert found.outcomes.tolist() == [*[0] * (len(found) - 1), np.float32(found.reward)]


def test_a_report_of_register_allocation(sample: Corpus) -> None:
    problem = RegallocEviction()
    policies = {"keep": RegallocEviction.policy("keep", 0)}
    corpus = sample.only(["frame_stream.c", "codec_text.c"])
    reports = list(rollout(corpus, policies, problem, keep_decisions=True))
    for report in reports:
        (attempt,) = report.attempts
        found = list(episodes_of_report(report, attempt, problem, source()))
        assert sum(map(len, found)) == len(attempt.decisions)
        for each in found:
            assert each.reward == report.rewards(attempt)[each.context]
            assert each.reward == pytest.approx(1 - each.score / each.baseline_score)
    assert len({each.context for each in found}) == len(found) > 1


def test_a_report_of_a_failure(small: Corpus) -> None:
    (report,) = rollout(
        dataclasses.replace(small, names=("no such module",)),
        {"default": InliningForSize.policy("default")},
        InliningForSize(),
    )
    assert report.error
    assert report.attempts == ()
    good = Episode(source(), GOOD.layout, GOOD.observations, GOOD.actions)
    assert math.isnan(good.reward)

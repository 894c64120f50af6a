"""Rollouts of policies that answer many observations at once."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path

import pytest

from mlgo_gym.corpus._corpus import Corpus
from mlgo_gym.errors import OptionsError, UsageError
from mlgo_gym.llvm._result import CompilationResult
from mlgo_gym.problems._inlining_for_size import InliningForSize, default
from mlgo_gym.problems._regalloc_eviction import RegallocEviction
from mlgo_gym.rollout._batched import batch_rollout
from mlgo_gym.rollout._rollout import rollout
from mlgo_gym.stream._events import Observation

LIFTED = InliningForSize(size_increase_threshold=math.inf)


def never(observations: Sequence[Observation]) -> list[int]:
    return [0 for _ in observations]


@pytest.mark.parametrize("jobs", [1, 3])
def test_it_equals_one_at_a_time(sample: Corpus, jobs: int) -> None:
    names = ("graph.cpp", "digest.c", "lz_pack.c", "json_write.c", "bignum.c")
    batches = []

    def policy(observations: Sequence[Observation]) -> list[int]:
        batches.append(len(observations))
        return [1 - default(each) for each in observations]

    found = {
        report.module: report
        for report in batch_rollout(
            sample, policy, LIFTED, names=names, jobs=jobs, keep_decisions=True
        )
    }
    expected = rollout(
        sample, {"batch": lambda o: 1 - default(o)}, LIFTED, names=names,
        keep_decisions=True,
    )  # fmt: skip
    assert found == {report.module: report for report in expected}
    baselines = {
        name: each.baseline
        for name, each in found.items()
        if isinstance(each.baseline, CompilationResult)
    }
    again = batch_rollout(
        sample, policy, LIFTED, names=names, jobs=jobs, keep_decisions=True, baselines=baselines
    )
    assert {report.module: report for report in again} == found
    assert max(batches) <= jobs
    assert sum(batches) == 2 * sum(len(each.attempts[0].decisions) for each in found.values())


def test_the_largest_is_started_first(sample: Corpus) -> None:
    names = sorted(sample, key=sample.size_bytes, reverse=True)
    sizes = [len(sample[name].data) for name in names]
    assert sizes == sorted(sizes, reverse=True)
    some = names[5:2:-1]
    reports = batch_rollout(sample, never, LIFTED, names=some)
    assert [report.module for report in reports] == sorted(some, key=names.index)
    policies = {"never": InliningForSize.policy("never")}
    unordered = rollout(sample, policies, LIFTED, names=some, in_order=False)
    assert [report.module for report in unordered] == sorted(some, key=names.index)
    both = {each.module for each in rollout(sample, policies, LIFTED, jobs=2, in_order=False)}
    assert both == set(sample)


def test_failures_are_reported_and_the_rest_goes_on(small: Corpus, tmp_path: Path) -> None:
    (tmp_path / "broken.bc").write_bytes(b"BC\xc0\xde")
    (tmp_path / "digest.c.bc").write_bytes((small.folder / "digest.c.bc").read_bytes())
    manifest = {"modules": ["broken", "digest.c"], "has_thinlto": False}
    (tmp_path / "corpus_description.json").write_text(json.dumps(manifest))
    corpus = Corpus.load(tmp_path)
    reports = {each.module: each for each in batch_rollout(corpus, never, LIFTED, jobs=2)}
    error = "module 'broken': LLVM bitcode parsing error\nExpected a single module"
    assert (reports["broken"].error, reports["broken"].attempts) == (error, ())
    assert reports["digest.c"].is_complete


def test_bad_policies_end_it(small: Corpus) -> None:
    with pytest.raises(UsageError, match="^policy: expected 1 answers, found 0$"):
        list(batch_rollout(small, lambda _: [], LIFTED))
    with pytest.raises(UsageError, match="^inlining_decision: expected 0 or 1, found 7$"):
        list(batch_rollout(small, lambda each: [7] * len(each), LIFTED, jobs=2))


def test_closing_early_ends_the_workers(sample: Corpus) -> None:
    reports = batch_rollout(sample, never, LIFTED, jobs=2)
    assert next(reports).is_complete
    reports.close()


def test_bad_settings(small: Corpus) -> None:
    with pytest.raises(OptionsError, match="^jobs: expected a number above 0, found 0$"):
        next(batch_rollout(small, never, LIFTED, jobs=0))
    with pytest.raises(OptionsError, match="^problem: expected one that is measured by the size"):
        next(batch_rollout(small, never, RegallocEviction()))
    with pytest.raises(OptionsError, match="^opt_level: expected one of"):
        next(batch_rollout(small, never, LIFTED, opt_level="fast"))

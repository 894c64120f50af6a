"""Policies that answer several compilations at once."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event

import pytest

from mlgo_gym.corpus._corpus import Corpus
from mlgo_gym.errors import UsageError
from mlgo_gym.llvm._compiler import Compiler
from mlgo_gym.problems._inlining_for_size import InliningForSize, default
from mlgo_gym.problems._policy import PolicyLike
from mlgo_gym.problems._regalloc_eviction import RegallocEviction, lowest_density
from mlgo_gym.rollout._rollout import rollout
from mlgo_gym.runners._policy import BatchedPolicy
from mlgo_gym.stream._training_log import Observation
from tests.conftest import one_in
from tests.waiting import wait_for

LIFTED = InliningForSize(size_increase_threshold=math.inf)


def never(observations: Sequence[Observation]) -> list[int]:
    return [0 for _ in observations]


@pytest.mark.e2e
@pytest.mark.parametrize("jobs", one_in(2, [3, 1]))
def test_it_equals_one_at_a_time(sample: Corpus, jobs: int) -> None:
    corpus = sample.only(("frame_stream.c", "json_write.c", "expr_compile.c"))
    batches = []

    def policy(observations: Sequence[Observation]) -> list[int]:
        batches.append(len(observations))
        return [1 - default(each) for each in observations]

    batched = {"opposite": BatchedPolicy(policy)}
    found = list(rollout(corpus, batched, LIFTED, jobs=jobs, keep_decisions=True))
    alone = {"opposite": lambda observation: 1 - default(observation)}
    assert found == list(rollout(corpus, alone, LIFTED, keep_decisions=True))
    assert 1 <= max(batches) <= jobs
    assert sum(batches) == sum(len(each.attempts[0].decisions) for each in found)


def test_functions_of_register_allocation(small: Corpus) -> None:
    batched = BatchedPolicy(lambda asked: [lowest_density(observation) for observation in asked])
    ways: dict[str, PolicyLike] = {"batched": batched, "alone": lowest_density}
    for report in rollout(small, ways, RegallocEviction(), jobs=2):
        together, alone = report.attempts
        assert together.result == alone.result


def test_what_is_asked_meanwhile_is_answered_together(compiler: Compiler, sample: Corpus) -> None:
    with compiler.start(sample["frame_stream.c"], LIFTED) as compilation:
        observation = compilation.next_observation()
    assert observation is not None
    batches = []
    asked_first, others_ask = Event(), Event()

    def number(observations: Sequence[Observation]) -> list[int]:
        batches.append(len(observations))
        asked_first.set()
        others_ask.wait()
        return list(range(len(observations)))

    policy = BatchedPolicy(number)
    with (
        policy.begin(sample["frame_stream.c"]) as answer,
        ThreadPoolExecutor(4) as threads,
    ):
        first = threads.submit(answer, observation)
        asked_first.wait()
        others = [threads.submit(answer, observation) for _ in range(3)]
        wait_for(lambda: len(policy._pending) == 3)
        others_ask.set()
        assert first.result() == 0
        assert sorted(other.result() for other in others) == [0, 1, 2]
    assert batches == [1, 3]


def test_failures_are_reported_and_the_rest_goes_on(small: Corpus, tmp_path: Path) -> None:
    (tmp_path / "broken.bc").write_bytes(b"BC\xc0\xde")
    (tmp_path / "frame_stream.c.bc").write_bytes((small.folder / "frame_stream.c.bc").read_bytes())
    manifest = {"modules": ["broken", "frame_stream.c"], "has_thinlto": False}
    (tmp_path / "corpus_description.json").write_text(json.dumps(manifest))
    policies = {"never": BatchedPolicy(never)}
    broken, digest = rollout(Corpus.load(tmp_path), policies, LIFTED, jobs=2)
    error = "module 'broken': LLVM bitcode parsing error\nExpected a single module"
    assert (str(broken.error), broken.attempts) == (error, ())
    assert digest.is_complete


@pytest.mark.parametrize("jobs", [1, 2])
def test_bad_policies_end_it(small: Corpus, jobs: int) -> None:
    def rolled_out(function: object) -> None:
        policy = BatchedPolicy(function)  # type: ignore[arg-type]
        list(rollout(small, {"bad": policy}, LIFTED, jobs=jobs))

    with pytest.raises(UsageError, match=r"^policy: expected [12] answers, found 0$"):
        rolled_out(lambda _: [])
    with pytest.raises(UsageError, match="^inlining_decision: expected 0 or 1, found 7$"):
        rolled_out(lambda asked: [7] * len(asked))
    with pytest.raises(ZeroDivisionError):
        rolled_out(lambda asked: [1 // 0 for _ in asked])


def test_closing_early_ends_the_workers(sample: Corpus) -> None:
    reports = rollout(sample, {"never": BatchedPolicy(never)}, LIFTED, jobs=2, in_order=False)
    assert next(reports).is_complete
    reports.close()

"""Rollouts: order, failures, logs, and closing early."""

from __future__ import annotations

import io
import json
import math
import re
from collections.abc import Callable
from itertools import groupby
from pathlib import Path
from typing import Any, cast

import pytest

from mlgo_gym.corpus._corpus import Corpus
from mlgo_gym.errors import ModuleError, OptionsError
from mlgo_gym.llvm._schedule import Executor, workers
from mlgo_gym.problems._inlining_for_size import InliningForSize
from mlgo_gym.problems._regalloc_eviction import RegallocEviction
from mlgo_gym.rollout._log import RolloutLog
from mlgo_gym.rollout._rollout import rollout
from mlgo_gym.stream._training_log import Observation, TrainingLogReader

LIFTED = InliningForSize(size_increase_threshold=math.inf)


@pytest.mark.e2e
def test_reports_do_not_depend_on_the_number_of_jobs(sample: Corpus) -> None:
    names = ("lru_cache.cpp", "frame_stream.c", "expr_compile.c")
    policies = {name: InliningForSize.policy(name, seed=4) for name in ("default", "random")}
    hashes = []
    for jobs in (1, 3):
        reports = list(rollout(sample.only(names), policies, LIFTED, jobs=jobs))
        assert [report.module for report in reports] == list(names)
        for report in reports:
            assert report.is_complete
            assert report.reward(report.attempts[0]) == 0.0
        results = [[each.result for each in report.attempts] for report in reports]
        hashes.append([[each.digest for each in row if each] for row in results])
    assert hashes[0] == hashes[1]
    assert all(default != random for default, random in hashes[0])


def test_the_log_holds_decisions_and_rewards(small: Corpus) -> None:
    file = io.BytesIO()
    log = RolloutLog(file, LIFTED)
    written = {}
    rewards = {}
    for report in rollout(
        small, {"never": InliningForSize.policy("never")}, LIFTED, keep_decisions=True
    ):
        written[report.module] = log.write(report)
        rewards[report.module] = report.reward(report.attempts[0])
        assert report.without_decisions().attempts[0].decisions == ()
    reader = TrainingLogReader(io.BytesIO(file.getvalue()))
    names = [spec.name for spec in reader.header.features]
    assert names[-2:] == ["inlining_default", "inlining_decision"]
    assert reader.header.score is not None
    assert reader.header.score.name == "reward"
    records = list(reader)
    for name, count in written.items():
        own = [record for record in records if record.observation.context == name]
        assert [record.observation.index for record in own] == list(range(count))
        assert {int(record.observation["inlining_decision"][0]) for record in own} == {0}
        scores = [float(record.score[0]) for record in own if record.score is not None]
        assert scores[:-1] == [0.0] * (count - 1)
        assert scores[-1] == pytest.approx(rewards[name])


def test_contexts_of_functions_name_their_module(small: Corpus, tmp_path: Path) -> None:
    """Two modules may each have a function of one name; by context they are told apart."""
    for name in ("one", "two"):
        for suffix in ("bc", "cmd"):
            data = (small.folder / f"json_write.c.{suffix}").read_bytes()
            (tmp_path / f"{name}.{suffix}").write_bytes(data)
    manifest = {"modules": ["one", "two"], "has_thinlto": False}
    (tmp_path / "corpus_description.json").write_text(json.dumps(manifest))
    problem = RegallocEviction()
    policies = {"random": RegallocEviction.policy("random")}
    file = io.BytesIO()
    log = RolloutLog(file, problem)
    functions = []
    for report in rollout(Corpus.load(tmp_path), policies, problem, keep_decisions=True):
        log.write(report)
        functions += [
            f"{report.module}:{context}"
            for context, _ in groupby(each.context for each in report.attempts[0].decisions)
        ]
    records = list(TrainingLogReader(io.BytesIO(file.getvalue())))
    found = [name for name, _ in groupby(each.observation.context for each in records)]
    assert found == functions
    assert len(set(found)) == len(found) == 2
    assert [each.observation.index for each in records].count(0) == len(found)


def test_failures_are_reported_and_the_rest_goes_on(small: Corpus, tmp_path: Path) -> None:
    (tmp_path / "broken.bc").write_bytes(b"BC\xc0\xde")
    for suffix in ("bc", "cmd"):
        name = f"frame_stream.c.{suffix}"
        (tmp_path / name).write_bytes((small.folder / name).read_bytes())
    manifest = {"modules": ["broken", "frame_stream.c"], "has_thinlto": False}
    (tmp_path / "corpus_description.json").write_text(json.dumps(manifest))
    broken, good = rollout(
        Corpus.load(tmp_path), {"never": InliningForSize.policy("never")}, LIFTED
    )
    assert isinstance(broken.error, ModuleError)
    assert broken.error.module == "broken"
    assert broken.error.__traceback__ is None  # its frames hold the module
    said = "module 'broken': LLVM bitcode parsing error\nExpected a single module"
    assert list(map(str, broken.failures)) == [said]
    assert (broken.attempts, broken.is_complete, good.is_complete) == ((), False, True)
    assert RolloutLog(io.BytesIO(), LIFTED).write(broken) == 0


@pytest.mark.e2e
def test_workers_of_somebody_else(small: Corpus) -> None:
    made = []

    def engine(state: Callable[[], Any]) -> Executor[Any]:
        made.append(workers(state, jobs=2))
        return made[-1]

    policies = {"never": InliningForSize.policy("never")}
    here = rollout(small, policies, LIFTED)
    there = rollout(small, policies, LIFTED, jobs=engine)
    assert [each.attempts[0].result for each in there] == [each.attempts[0].result for each in here]
    assert len(made) == 1


def test_a_policy_that_raises_ends_the_rollout(small: Corpus) -> None:
    def broken(observation: Observation) -> int:
        raise ZeroDivisionError(observation.index)

    with pytest.raises(ZeroDivisionError):
        list(rollout(small, {"broken": broken}, LIFTED, jobs=2))


@pytest.mark.e2e
@pytest.mark.parametrize("jobs", [1, 2])
def test_closing_early_ends_the_workers(sample: Corpus, jobs: int) -> None:
    reports = rollout(sample, {"always": InliningForSize.policy("always")}, LIFTED, jobs=jobs)
    assert next(reports).module == sample.names[0]
    reports.close()


@pytest.mark.e2e
def test_the_largest_is_started_first(sample: Corpus) -> None:
    names = sorted(sample, key=sample.size_bytes, reverse=True)
    sizes = [len(sample[name].data) for name in names]
    assert sizes == sorted(sizes, reverse=True)
    some = names[:-4:-1]
    policies = {"never": InliningForSize.policy("never")}
    unordered = rollout(sample.only(some), policies, LIFTED, in_order=False)
    assert [report.module for report in unordered] == sorted(some, key=names.index)
    both = rollout(sample.only(some), policies, LIFTED, jobs=2, in_order=False)
    assert {each.module for each in both} == set(some)


def test_bad_settings(small: Corpus) -> None:
    for jobs in (0, 1.5, "2", None):
        message = f"jobs: expected a number above 0, found {jobs!r}"
        with pytest.raises(OptionsError, match=f"^{re.escape(message)}$"):
            next(rollout(small, {}, LIFTED, jobs=cast("int", jobs)))
    with pytest.raises(OptionsError, match="^opt_level: expected one of"):
        next(rollout(small, {}, LIFTED, opt_level="fast"))


def test_sites_stand_beside_the_log(small: Corpus) -> None:
    corpus, policies = small.only(["frame_stream.c"]), {"never": InliningForSize.policy("never")}
    logs = []
    for wanted in (False, True):
        log = RolloutLog(file := io.BytesIO(), LIFTED, (sites := io.BytesIO()) if wanted else None)
        (report,) = rollout(corpus, policies, LIFTED, keep_decisions=True, sites=wanted)
        count = log.write(report)
        logs.append(file.getvalue())
    assert logs[0] == logs[1]
    lines = [json.loads(line) for line in sites.getvalue().splitlines()]
    assert [(each["context"], each["observation"]) for each in lines] == [
        ("frame_stream.c", index) for index in range(count)
    ]
    found = report.attempts[0].decisions
    records = [each.site.record() for each in found if each.site]
    assert [each["site"] for each in lines] == json.loads(json.dumps(records))
    assert all(each.context == "" for each in found)


def test_sites_of_decisions_that_are_about_no_calls(small: Corpus) -> None:
    problem = RegallocEviction()
    message = "^sites: expected the inliner's decisions, found RegallocEviction$"
    with pytest.raises(OptionsError, match=message):
        next(rollout(small, {"first": problem.policy("first")}, problem, sites=True))

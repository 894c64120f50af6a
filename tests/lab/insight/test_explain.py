"""Permutation importance of models whose answers are known."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from mlgo_gym.corpus._corpus import Corpus
from mlgo_gym.errors import CorpusError
from mlgo_gym.evaluation._evaluate import Setting
from mlgo_gym.lab.insight._explain import (
    Importance,
    PermutedText,
    Questions,
    decide,
    joined,
    most_asking,
    permutation_importance,
    record_observations,
    share_inlined,
    text_when_permuted,
)
from mlgo_gym.problems._inlining_for_size import InliningForSize
from mlgo_gym.problems._policy import PolicyLike
from mlgo_gym.runners._base import MLModelRunner
from mlgo_gym.runners._models import native_runner
from mlgo_gym.runners._policy import RunnerPolicy

MODELS = Path(__file__).parents[2] / "models"
SETTING = Setting(InliningForSize())


@dataclass(frozen=True)
class Known:
    """A model, and what it was asked in the small corpus."""

    runner: MLModelRunner
    policy: PolicyLike
    recorded: Questions
    packages: dict[str, Corpus]

    def importance(self) -> dict[str, Importance]:
        found = permutation_importance(self.runner, self.recorded, seed=3, repeats=4)
        return {each.feature: each for each in found}


@contextlib.contextmanager
def known(name: str, small: Corpus, setting: Setting = SETTING) -> Iterator[Known]:
    with contextlib.ExitStack() as stack:
        problem = setting.problem
        factory = native_runner(MODELS / name, problem, stack)
        policy = stack.enter_context(RunnerPolicy(factory, keep=True))
        packages = {"small": small}
        recorded = joined(list(record_observations(packages, policy, setting)))
        runner = stack.enter_context(factory(problem.layout.specs, problem.advice))
        yield Known(runner, policy, recorded, packages)


@pytest.mark.e2e
@pytest.mark.parametrize("vocabulary", [None, "one-hot"])
def test_a_model_of_one_feature(vocabulary: str | None, small: Corpus) -> None:
    """A feature of several numbers, too, is permuted as one."""
    problem = InliningForSize(ir2vec=vocabulary)
    with known("default", small, Setting(problem)) as model:
        column = model.recorded.values["inlining_default"]
        assert (column == model.recorded.decisions).all()
        found = model.importance()
        runner, values = model.runner, model.recorded.values
        assert share_inlined(runner, values, {"inlining_default": 1}) == 1.0
        assert share_inlined(runner, values, {"cost_estimate": 10**6}) == column.mean()
    assert list(found) == [spec.name for spec in problem.layout.specs]
    if vocabulary:
        assert found["callee_embedding"].values > 2
    assert {name for name, each in found.items() if each.changed} == {"inlining_default"}
    share = column.mean()
    one = found["inlining_default"]
    assert one.changed == pytest.approx(2 * share * (1 - share), abs=0.04)
    assert one.to_inline == pytest.approx(one.changed / 2)  # a permutation keeps their number
    assert one.values == 2
    assert one.deviation
    assert 0 < one.deviation < one.changed


@pytest.mark.e2e
def test_a_model_of_none(small: Corpus) -> None:
    with known("never", small) as model:
        assert not model.recorded.decisions.any()
        assert not any(each.changed for each in model.importance().values())


@pytest.mark.e2e
def test_what_is_recorded_is_what_the_model_answers(small: Corpus) -> None:
    with known("inliner", small) as model:
        recorded = model.recorded
        assert (decide(model.runner, recorded.values) == recorded.decisions).all()
        assert sum(recorded.asked) == len(recorded.values)
        assert recorded.errors == ()
        sample = recorded.sample(20, seed=1)
        assert sample.values.shape == (20,)
        assert (sample.values == recorded.sample(20, seed=1).values).all()
        assert (decide(model.runner, sample.values) == sample.decisions).all()
        first, second = (model.importance() for _ in range(2))
        assert first == second
        constant = {name for name, each in first.items() if each.values == 1}
        assert constant
        assert not any(first[name].changed for name in constant)


@pytest.mark.e2e
def test_text(small: Corpus) -> None:
    with known("default", small) as model:
        chosen = most_asking(model.recorded, model.packages, 1)
        (key,) = chosen
        assert key == ("small", small.names[int(np.argmax(model.recorded.asked))])
        features = ["inlining_default", "cost_estimate"]
        reports = text_when_permuted(
            chosen, features, model.policy, model.recorded, SETTING, seed=0
        )
        text = PermutedText.of(list(reports))
    assert text.modules == (key.name,)
    assert text.change("cost_estimate") == 0.0
    assert text.change("inlining_default") != 0.0
    assert text.text_bytes["cost_estimate"] == text.text_bytes[""]


def test_nothing_is_asked() -> None:
    empty = Questions(np.zeros(0, InliningForSize().layout.dtype), np.zeros(0, np.int64), (0,), ())
    with pytest.raises(
        CorpusError, match="corpus: expected modules in which LLVM asks, found none"
    ):
        joined([empty])
    assert PermutedText.of([]).change("") == 0.0

"""Measures: one definition of reward, and what a problem may name."""

from __future__ import annotations

import math

import pytest

from mlgo_gym.errors import EnvironmentSetupError
from mlgo_gym.problems._inlining_for_size import InliningForSize
from mlgo_gym.rollout._measures import measure_of, reward_of


@pytest.mark.parametrize(
    ("score", "baseline", "reward"),
    [
        (90, 100, 0.1),
        (100, 100, 0.0),
        (130, 100, -0.3),
        (0, 100, 1.0),
        (0, 0, 0.0),
        (1, 0, -math.log(2)),
        (5, 0, -math.log(6)),
    ],
)
def test_positive_is_better(score: float, baseline: float, reward: float) -> None:
    assert reward_of(score, baseline) == pytest.approx(reward)


@pytest.mark.parametrize(
    ("measure", "message"),
    [
        ("nowhere:Nothing", "No module named 'nowhere'"),
        ("mlgo_gym.rollout:Nothing", "No mlgo_gym.rollout attribute Nothing"),
        ("mlgo_gym.rollout:reward_of", "expected a subclass of mlgo_gym.rollout.Measure, found "),
        (
            "mlgo_gym.rollout._linked_text:LinkedText",
            "expected one that needs no corpus, found: LinkedText",
        ),
    ],
)
def test_a_measure_that_is_none(measure: str, message: str) -> None:
    kind = type("Broken", (InliningForSize,), {"measure": measure})
    with pytest.raises(EnvironmentSetupError) as caught:
        measure_of(kind())
    expected = f"InliningForSize: measure {measure!r}: {message}"
    assert str(caught.value).startswith(expected)

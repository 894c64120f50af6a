"""Rewards of searches and trainers by name, beside the problem's own measure."""

from __future__ import annotations

from typing import Final

from mlgo_gym.base import OptionsError
from mlgo_gym.problems import Problem
from mlgo_gym.rollout import Measure, TextSize, measure_of, reward_name

TEXT: Final = "text"


def reward_beside(problem: Problem, reward: str | Measure | None) -> str | None:
    """A reward as all spellings of it have it; ``None`` where it is the problem's own measure.

    Raises:
        OptionsError: it is no reward.
    """
    if isinstance(reward, Measure):
        return reward.key
    name = None if reward is None else reward_name(reward)
    return None if name == TEXT and type(measure_of(problem)) is TextSize else name


def check_most_text(
    most_text: float | None, name: str | None, reward: str | Measure | None
) -> None:
    """See that text is limited beside a reward alone, as `reward_beside` has named it.

    Raises:
        OptionsError: there is no reward, or one that is the text.
    """
    if most_text is not None and name is None:
        raise OptionsError(f"most_text: expected a reward other than text, found {reward!r}")

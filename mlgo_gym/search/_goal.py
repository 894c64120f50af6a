"""The goal and duration of a search, and its findings."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic

from mlgo_gym.base import OptionsError
from mlgo_gym.rollout import Trace
from mlgo_gym.search._choices import Choice


@dataclass(frozen=True, slots=True)
class Found:
    """The best compilation of a search, with its observations for imitation.

    Scores are those of the measure that was searched by; less is better. ``compilations`` includes
    branches.
    """

    choice: Choice
    trace: Trace
    size_bytes: int
    default_size_bytes: int
    compilations: int
    score: float
    default_score: float


@dataclass(frozen=True, slots=True)
class SearchSetting:
    """The time, order and limit of text of a module's search.

    Attributes:
        budget_s: how long, in seconds; at least LLVM's default is compiled.
        seed: of the order in which groups are tried.
        clock: what the budget is measured with, in seconds.
        most_text: how many times the text of LLVM's default is kept at most; ``None`` is no limit.

    Raises:
        OptionsError: the budget is not above 0, or the text less than LLVM's default has.

    >>> SearchSetting(budget_s=60).seed
    0
    """

    budget_s: float
    seed: int = 0
    clock: Callable[[], float] = monotonic
    most_text: float | None = None

    def __post_init__(self) -> None:
        if not self.budget_s > 0:
            raise OptionsError(f"budget: expected a number above 0, found {self.budget_s!r}")
        check_limit(self.most_text)


def check_limit(most_text: float | None) -> None:
    """See that a limit of text, as a multiple of LLVM's own, lets LLVM's own pass.

    Raises:
        OptionsError: it does not.
    """
    if most_text is not None and not 1 <= most_text < math.inf:
        raise OptionsError(
            f"most_text: expected a finite number of at least 1, found {most_text!r}"
        )

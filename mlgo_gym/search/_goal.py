"""The goal of a search, the policies among which it searches, and its findings.

These policies treat alike calls alike. LLVM's observations name neither caller nor callee, so calls
are told apart by their features. A choice is a base policy, limits of the inline cost by how often
the callee is used, and answers for groups of calls: all calls of callees that look alike, calls
that look alike in detail, calls in callers that look alike, or all but identical calls.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from time import monotonic
from types import MappingProxyType
from typing import Any, Final

import numpy as np

from mlgo_gym.base import OptionsError
from mlgo_gym.problems import Action, Answer, InliningForSize, Problem
from mlgo_gym.rollout import Measure, TextSize, Trace, measure_of, reward_name
from mlgo_gym.stream import Observation

TEXT: Final = "text"
CallGroup = tuple[str, bytes]
"""A group of calls: the level it is told apart by, and its key there."""

USER_CLASSES: Final = (1, 2, 3, 5, 9)
"""Bounds of the classes by ``callee_users``; the last class is above them. A function that is
visible outside its module has one user more, so 1 is the only call of a static function and 2 the
only call of a template's instance: inlined, the callee disappears."""

LIMITS: Final = (None, -40, -20, -10, 0, 10, 20, 40, 80, 160, 320)
"""Values of a limit: the cost below which a call is inlined whatever the base policy says."""

_INDEX: Final = {name: at for at, name in enumerate(InliningForSize().layout.feature_names)}
_USERS: Final = _INDEX["callee_users"]
_COST: Final = _INDEX["cost_estimate"]
_GLOBAL: Final = ("node_count", "edge_count")
_CALLEE: Final = (
    "callee_basic_block_count",
    "callee_conditionally_executed_blocks",
    "call_penalty",
    "lowered_call_arg_setup",
    "is_multiple_blocks",
)

LEVELS: Final[Mapping[str, np.ndarray[Any, np.dtype[np.intp]]]] = MappingProxyType(
    {
        level: np.array([_INDEX[name] for name in names])
        for level, names in {
            "single": tuple(name for name in _INDEX if name not in _GLOBAL),
            "call": (*_CALLEE, "cost_estimate", "callee_users", "constant_args"),
            "callee": _CALLEE,
            "caller": ("callsite_height", "caller_users"),
        }.items()
    }
)
"""Columns that tell calls apart, from the finest level to the coarsest; finer answers win."""


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


def group_of(level: str, observation: Observation) -> CallGroup:
    """The group that a call belongs to at a level."""
    return level, _row(observation)[LEVELS[level]].tobytes()


def _row(observation: Observation) -> np.ndarray[Any, np.dtype[np.int64]]:
    return np.frombuffer(observation.payload, np.int64)


@dataclass(frozen=True, slots=True)
class Choice:
    """One policy among those that are searched: a base, and groups of calls with other answers.

    For each class of ``callee_users`` there is an inline cost below which calls are inlined, or
    ``None``, which leaves it to the base.
    """

    base: str
    limits: tuple[int | None, ...] = (None,) * (len(USER_CLASSES) + 1)
    flips: Mapping[CallGroup, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if len(self.limits) != len(USER_CLASSES) + 1:
            raise OptionsError(
                f"limits: expected {len(USER_CLASSES) + 1}, found {len(self.limits)}"
            )
        for level, _ in self.flips:
            if level not in LEVELS:
                raise OptionsError(f"level: expected one of {', '.join(LEVELS)}, found {level!r}")

    def with_limit(self, index: int, limit: int | None) -> Choice:
        limits = (*self.limits[:index], limit, *self.limits[index + 1 :])
        return replace(self, limits=limits)

    def with_flips(self, flips: Mapping[CallGroup, int]) -> Choice:
        return replace(self, flips={**self.flips, **flips})

    def policy(self, bases: Mapping[str, Answer]) -> Answer:
        """The policy; ``bases`` has the base's function."""
        base = bases[self.base]
        levels = [level for level in LEVELS if any(level == used for used, _ in self.flips)]

        def answer(observation: Observation) -> Action:
            row = _row(observation)
            for level in levels:
                action = self.flips.get((level, row[LEVELS[level]].tobytes()))
                if action is not None:
                    return action
            limit = self.limits[bisect.bisect_left(USER_CLASSES, row[_USERS])]
            if limit is not None and row[_COST] < limit:
                return 1
            return base(observation)

        return answer

    def to_json(self) -> dict[str, Any]:
        flips = [[level, key.hex(), action] for (level, key), action in self.flips.items()]
        return {"base": self.base, "limits": list(self.limits), "flips": flips}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Choice:
        try:
            flips = {
                (str(level), bytes.fromhex(key)): int(action)
                for level, key, action in value["flips"]
            }
            limits = tuple(None if each is None else int(each) for each in value["limits"])
            return cls(str(value["base"]), limits, flips)
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise OptionsError(f"choice: expected base, limits and flips: {error!r}") from error


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

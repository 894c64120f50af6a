"""When LLVM asked, and when it had its answer, by the clock that all processes here share."""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from dataclasses import dataclass
from time import monotonic_ns
from typing import Final

from mlgo_gym.problems import Action, Problem
from mlgo_gym.stream import Observation


@dataclass(frozen=True, slots=True)
class Answered:
    """When a decision was asked for and answered, in nanoseconds of ``time.monotonic_ns``.

    Attributes:
        context: of the observation.
        action: the answer, a number.
    """

    asked_ns: int
    answered_ns: int
    context: str
    action: Action


class Timing:
    """The answers to one compilation's questions, in their order, as far as they are watched."""

    def __init__(self) -> None:
        self.answers: Final[list[Answered]] = []
        self._asked_ns = monotonic_ns()  # of a branch, which begins with a question

    def asked(self) -> None:
        """A question has come here."""
        self._asked_ns = monotonic_ns()

    def answered(self, problem: Problem, observation: Observation, advice: bytes) -> None:
        """The question has been answered."""
        self._add(problem, observation, advice, self._asked_ns, monotonic_ns())

    def answered_inside(
        self, problem: Problem, asked: Iterable[tuple[Observation, bytes]], times: bytes
    ) -> None:
        """Record the answers given in the worker, with the moments that it has written down."""
        moments = array("q", times)
        pairs = zip(moments[::2], moments[1::2], strict=False)
        for (observation, advice), (asked_ns, answered_ns) in zip(asked, pairs, strict=False):
            self._add(problem, observation, advice, asked_ns, answered_ns)

    def _add(
        self, problem: Problem, asked: Observation, advice: bytes, asked_ns: int, answered_ns: int
    ) -> None:
        action = problem.advice.decode(advice).item()
        self.answers.append(Answered(asked_ns, answered_ns, asked.context, action))

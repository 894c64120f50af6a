"""Policies that answer several compilations at once, such as networks."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, nullcontext
from threading import Lock

from mlgo_gym.base import UsageError
from mlgo_gym.corpus import Module
from mlgo_gym.problems import Action, Answer, Policy
from mlgo_gym.stream import Observation

AnswerAll = Callable[[Sequence[Observation]], Sequence[Action]]
"""Answers observations, of different compilations, in their order."""


class BatchedPolicy(Policy):
    """Answers together what several workers ask at the same time.

    The first worker that asks answers all pending questions; workers that ask meanwhile wait for
    the next turn. Which observations come together depends on timing, so the answer to one must
    not depend on the others.

    Args:
        answer_all: called in one thread at a time, with an observation of each worker at most.
            Too few or too many answers are a `UsageError`.

    >>> from mlgo_gym import SAMPLE_CORPUS, Corpus, InliningForSize
    >>> from mlgo_gym.rollout import rollout
    >>> never = BatchedPolicy(lambda observations: [0 for _ in observations])
    >>> corpus = Corpus.load(SAMPLE_CORPUS).only(["digest.c", "hash_map.c"])
    >>> reports = rollout(corpus, {"never": never}, InliningForSize(), jobs=2)
    >>> all(report.is_complete for report in reports)
    True
    """

    def __init__(self, answer_all: AnswerAll) -> None:
        self._answer_all = answer_all
        self._pending: deque[tuple[Observation, Future[Action]]] = deque()
        self._turn = Lock()

    def begin(self, module: Module) -> AbstractContextManager[Answer]:  # noqa: ARG002
        """Answers that come together with those to other compilations."""
        return nullcontext(self._answer)

    def _answer(self, observation: Observation) -> Action:
        future: Future[Action] = Future()
        self._pending.append((observation, future))
        with self._turn:
            if not future.done():
                self._answer_pending()
        return future.result()

    def _answer_pending(self) -> None:
        asked = [self._pending.popleft() for _ in range(len(self._pending))]
        try:
            actions = self._answers([observation for observation, _ in asked])
        except BaseException as error:  # noqa: BLE001 - whoever asked gets it
            for _, future in asked:
                future.set_exception(error)
            return
        for (_, future), action in zip(asked, actions, strict=True):
            future.set_result(action)

    def _answers(self, observations: Sequence[Observation]) -> Sequence[Action]:
        actions = self._answer_all(observations)
        if len(actions) != len(observations):
            raise UsageError(f"policy: expected {len(observations)} answers, found {len(actions)}")
        return actions

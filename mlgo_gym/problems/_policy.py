"""Policies: what answers LLVM, compilation by compilation.

A plain function from an observation to an action is one too, wherever a policy is asked for::

    compiler.compile_module(module, problem=InliningForSize(), policy=lambda observation: 1)
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from mlgo_gym.corpus import Module
from mlgo_gym.stream import Observation

if TYPE_CHECKING:
    from mlgo_gym.problems._problem import Problem

Action = int | float
"""A number that answers an observation; an integer where the advice is one."""

Answer = Callable[[Observation], Action]
"""A function from an observation of one compilation to an action."""


def in_turn(actions: Iterable[Action]) -> Answer:
    """Answers one question after the other, of one compilation, whatever they are.

    >>> answer = in_turn([1, 0])
    >>> answer(None), answer(None)
    (1, 0)
    """
    left = iter(actions)
    return lambda _: next(left)


@dataclass(frozen=True, slots=True)
class SentPolicy:
    """A policy inside a worker, in the form in which it is sent there.

    Attributes:
        key: what it is known by, the same for the same answers.
        about: what it is, as JSON values: the ``kind`` and what that needs
            (`mlgo_gym.llvm.worker._answers`).
        data: a model's code, a function's source, or recorded answers.
        is_for_once: it answers one compilation.
        keep: what it was asked is handed to `Policy.answered`.
        of: who is sent before, since this one asks it.
    """

    key: str
    about: Mapping[str, Any] = field(repr=False)
    data: bytes = field(repr=False)
    is_for_once: bool = False
    keep: bool = False
    of: SentPolicy | None = None

    def parts(self) -> tuple[SentPolicy, ...]:
        """This one, behind the one that it asks."""
        return (self.of, self) if self.of else (self,)


class Policy(ABC):
    """A policy answers observations, with a beginning and an end for each compilation.

    A policy may be used by several threads at once, each with compilations of its own. It is a
    context manager: closing it releases what outlives compilations.

    Attributes:
        left: names of functions whose evictions LLVM's own heuristic decides. The policy gets no
            questions of the register allocator in them.

    >>> from mlgo_gym.corpus import SAMPLE_CORPUS, Corpus
    >>> from mlgo_gym.problems import InliningForSize
    >>> module = Corpus.load(SAMPLE_CORPUS)["scene.cpp"]
    >>> with InliningForSize.policy("random", seed=1).begin(module) as answer:
    ...     callable(answer)
    True
    """

    left: Collection[str] = ()

    @abstractmethod
    def begin(self, module: Module) -> AbstractContextManager[Answer]:
        """Return a context whose value answers one compilation of a module."""

    def for_module(self, module: Module) -> Policy:  # noqa: ARG002
        """Return the policy that answers the compilations of one module: this one, for most."""
        return self

    def for_worker(self, problem: Problem) -> SentPolicy | None:  # noqa: ARG002
        """Return a policy that answers inside the worker, in LLVM's process, if there is one.

        It gives the answers that `begin` would; where it declines, those are asked.

        Raises:
            UsageError: it should, and cannot be sent.
        """
        return None

    def answered(self, decisions: Sequence[tuple[Observation, bytes]]) -> None:  # noqa: B027
        """Take what was answered inside the worker, with the raw advice, where it is kept."""

    def close(self) -> None:  # noqa: B027 - most policies hold nothing
        """Release what the policy holds; safe to call twice."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


PolicyLike = Policy | Answer
"""A policy, or a plain function that answers."""


class FunctionPolicy(Policy):
    """A policy that uses one function for every compilation."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer

    def begin(self, module: Module) -> AbstractContextManager[Answer]:  # noqa: ARG002
        return nullcontext(self._answer)


class WatchedPolicy(Policy):
    """A policy that calls ``watch`` with every decision and its raw advice."""

    def __init__(
        self, policy: PolicyLike, problem: Problem, watch: Callable[[Observation, bytes], None]
    ) -> None:
        self._policy = as_policy(policy)
        self._problem = problem
        self._watch = watch
        self.left = self._policy.left

    def for_module(self, module: Module) -> Policy:
        """Return a watched form of what the policy has for a module."""
        found = self._policy.for_module(module)
        return self if found is self._policy else WatchedPolicy(found, self._problem, self._watch)

    @contextmanager
    def begin(self, module: Module) -> Iterator[Answer]:
        """The policy's answers to one compilation."""
        with self._policy.begin(module) as answer:

            def watched(observation: Observation) -> Action:
                action = answer(observation)
                self._watch(observation, self._problem.encode_advice(action, observation))
                return action

            yield watched

    def for_worker(self, problem: Problem) -> SentPolicy | None:
        """Return the policy's part in the worker, which keeps its answers."""
        sent = self._policy.for_worker(problem)
        return replace(sent, keep=True) if sent else None

    def answered(self, decisions: Sequence[tuple[Observation, bytes]]) -> None:
        """Tell of what was answered in the worker, whoever else watches the policy first."""
        self._policy.answered(decisions)
        for observation, advice in decisions:
            self._watch(observation, advice)


class RandomPolicy(Policy):
    """Answers by chance: the same seed and module give the same answers, in whatever order."""

    def __init__(
        self, seed: int, draw: Callable[[np.random.Generator, Observation], Action]
    ) -> None:
        self._seed = seed
        self._draw = draw

    def begin(self, module: Module) -> AbstractContextManager[Answer]:
        generator = np.random.default_rng([self._seed, *bytes.fromhex(module.sha256)])
        return nullcontext(lambda observation: self._draw(generator, observation))


def as_policy(given: PolicyLike) -> Policy:
    """Return a policy as it is, or make one that answers with a function.

    >>> isinstance(as_policy(lambda observation: 1), Policy)
    True
    """
    return given if isinstance(given, Policy) else FunctionPolicy(given)

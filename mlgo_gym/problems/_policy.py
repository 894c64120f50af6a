"""Policies: what answers LLVM, compilation by compilation.

A plain function from an observation to an action is one too, wherever a policy is asked for::

    compiler.compile_module(module, problem=InliningForSize(), policy=lambda observation: 1)
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import ClassVar, Self

import numpy as np

from mlgo_gym.corpus._corpus import Module
from mlgo_gym.stream._events import Observation

Action = int | float
"""What answers an observation: a number, whole where the advice is."""

Answer = Callable[[Observation], Action]
"""Turns an observation of one compilation into an action."""


class Policy(ABC):
    """What answers observations, with a beginning and an end for each compilation.

    A policy may be used by several threads at once, each with compilations of its own. It is a
    context manager: closing it releases what outlives compilations.

    Attributes:
        can_run_in_worker: it can answer inside the worker, without leaving LLVM's process.

    >>> from mlgo_gym.corpus import SAMPLE_CORPUS, Corpus
    >>> from mlgo_gym.problems import InliningForSize
    >>> module = Corpus.load(SAMPLE_CORPUS)["scene.cpp"]
    >>> with InliningForSize.policy("random", seed=1).begin(module) as answer:
    ...     callable(answer)
    True
    """

    can_run_in_worker: ClassVar[bool] = False

    @abstractmethod
    def begin(self, module: Module) -> AbstractContextManager[Answer]:
        """What answers one compilation of a module; leaving the context ends it."""

    def close(self) -> None:  # noqa: B027 - most policies hold nothing
        """Release what the policy holds; safe to call twice."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


PolicyLike = Policy | Answer
"""What is taken wherever a policy is asked for: one, or a plain function that answers."""


class FunctionPolicy(Policy):
    """The same function for every compilation."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer

    def begin(self, module: Module) -> AbstractContextManager[Answer]:  # noqa: ARG002
        return nullcontext(self._answer)


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
    """A policy; of a function, the one that answers with it.

    >>> as_policy(lambda observation: 1).can_run_in_worker
    False
    """
    return given if isinstance(given, Policy) else FunctionPolicy(given)

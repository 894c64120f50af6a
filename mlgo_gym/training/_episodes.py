"""Episodes: modules compiled under a policy, and what they were worth.

For the inliner an episode is a module, for register allocation a function. A module that LLVM
refuses, crashes or hangs on is reported and left out.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Final, Self

import numpy as np

from mlgo_gym.corpus._corpus import Corpus, Module
from mlgo_gym.llvm._compiler import DEFAULT_TIMEOUT_S, Compiler, options_of
from mlgo_gym.llvm._schedule import each
from mlgo_gym.problems._policy import PolicyLike
from mlgo_gym.problems._problem import Problem
from mlgo_gym.rollout._rollout import Decision, Recorded
from mlgo_gym.scoring._measures import Result, measure_of
from mlgo_gym.training._sampling import raw_rows

_Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class Episode:
    """The decisions of one module or one function.

    Attributes:
        name: the module, and behind a colon the function where functions are scored.
        rows: the raw observations, ``uint8 [T, bytes]``.
        actions: what was answered, ``int64 [T]``.
        reward: the share of the baseline's bytes or score that was saved; positive is better.
    """

    name: str
    rows: _Array = field(repr=False)
    actions: _Array = field(repr=False)
    reward: float


@dataclass(frozen=True, slots=True)
class Collected:
    """What came out of some modules.

    Attributes:
        episodes: by name; those without a decision are left out.
        failures: why a module has no result, by name.
    """

    episodes: tuple[Episode, ...]
    failures: Mapping[str, str]


class Collector:
    """Compiles modules of several packages under policies, again and again.

    Modules are called ``PACKAGE/MODULE``.

    Args:
        packages: corpora by the names of their packages.
        problem: what LLVM asks for.
        jobs: how many workers compile at once.
        timeout_s: how long LLVM may take for one compilation, in seconds.

    Attributes:
        jobs: how many workers compile at once.
    """

    def __init__(
        self,
        packages: Mapping[str, Corpus],
        problem: Problem,
        *,
        jobs: int = 1,
        timeout_s: float = DEFAULT_TIMEOUT_S,
    ) -> None:
        self._corpus = _Merged.of(packages)
        self._problem = problem
        self.jobs: Final = jobs
        self._timeout_s = timeout_s
        self._measure = measure_of(problem)
        self._baselines: dict[str, Result] = {}

    @property
    def names(self) -> tuple[str, ...]:
        """All modules."""
        return self._corpus.names

    def collect(
        self,
        names: Sequence[str],
        policy: PolicyLike,
        is_over: Callable[[], bool] = lambda: False,
    ) -> Collected:
        """Compile some modules. What comes out does not depend on the number of workers.

        Args:
            names: which.
            policy: answers, in as many threads as there are workers.
            is_over: asked after each module; those that are left are not compiled then.
        """
        failures: dict[str, str] = {}
        episodes: list[Episode] = []

        def compiled(compiler: Compiler, name: str) -> list[Episode]:
            return list(self._episodes(compiler, name, policy))

        compiler = partial(Compiler, timeout_s=self._timeout_s)
        size = self._corpus.size_bytes
        with closing(each(names, compiled, compiler, jobs=self.jobs, size=size)) as found:
            for done in found:
                if done.error:
                    failures[done.item] = str(done.error)
                else:
                    episodes += done.value
                if is_over():
                    break
        episodes.sort(key=lambda episode: episode.name)
        return Collected(tuple(episodes), failures)

    def _episodes(self, compiler: Compiler, name: str, policy: PolicyLike) -> Iterator[Episode]:
        module = self._corpus[name]
        unit = self._measure.unit(compiler, module, options_of(module), self._problem)
        baseline = self._baselines.get(name) or unit.baseline()
        if self._measure.makes_objects:  # otherwise it is what the unit's attempts start from
            self._baselines[name] = baseline
        contexts: defaultdict[str, list[Decision]] = defaultdict(list)
        decisions: list[Decision] = []
        result = unit.attempt(Recorded(policy, self._problem, decisions))
        rewards = self._measure.rewards(result, baseline)
        for decision in decisions:
            contexts[decision.context].append(decision)
        for context, asked in contexts.items():
            if context in rewards:
                yield Episode(
                    name=f"{name}:{context}" if context else name,
                    rows=raw_rows([decision.payload for decision in asked], self._problem),
                    actions=np.frombuffer(
                        b"".join(decision.advice for decision in asked), self._problem.advice.dtype
                    ),
                    reward=rewards[context],
                )


@dataclass(frozen=True)
class _Merged(Corpus):
    """Several corpora as one, whose names have their packages in front."""

    parts: Mapping[str, tuple[Corpus, str]] = field(default_factory=dict)

    @classmethod
    def of(cls, packages: Mapping[str, Corpus]) -> Self:
        parts = {
            f"{package}/{name}": (corpus, name)
            for package, corpus in packages.items()
            for name in corpus
        }
        return cls(Path(), tuple(parts), parts=parts)

    def __getitem__(self, name: str) -> Module:
        corpus, own = self.parts[name]
        return replace(corpus[own], name=name)

    def size_bytes(self, name: str) -> int:
        corpus, own = self.parts[name]
        return corpus.size_bytes(own)

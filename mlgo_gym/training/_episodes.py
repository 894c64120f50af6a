"""Episodes: modules compiled under a policy that answers in batches, and what they were worth.

For the inliner an episode is a module, for register allocation a function. A module that LLVM
refuses, crashes or hangs on is reported and left out.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Self

import numpy as np

from mlgo_gym.corpus._corpus import Corpus, Module
from mlgo_gym.llvm._compiler import DEFAULT_TIMEOUT_S
from mlgo_gym.llvm._result import CompilationResult
from mlgo_gym.problems._problem import Problem
from mlgo_gym.rollout._batched import BatchPolicy, batch_rollout
from mlgo_gym.rollout._rollout import Decision, ModuleReport, rollout
from mlgo_gym.scoring._measures import measure_of
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
        self._baselines: dict[str, CompilationResult] = {}

    @property
    def names(self) -> tuple[str, ...]:
        """All modules."""
        return self._corpus.names

    def collect(
        self,
        names: Sequence[str],
        policy: BatchPolicy,
        is_over: Callable[[], bool] = lambda: False,
    ) -> Collected:
        """Compile some modules. What comes out does not depend on the number of workers.

        Args:
            names: which.
            policy: answers; for register allocation with several workers, in as many threads.
            is_over: asked after each module; those that are left are not compiled then.
        """
        failures: dict[str, str] = {}
        episodes: list[Episode] = []
        with closing(self._reports(names, policy)) as reports:
            for report in reports:
                if isinstance(report.baseline, CompilationResult):
                    self._baselines[report.module] = report.baseline
                if (error := _error_of(report)) is not None:
                    failures[report.module] = error
                else:
                    episodes += self._episodes(report)
                if is_over():
                    break
        episodes.sort(key=lambda episode: episode.name)
        return Collected(tuple(episodes), failures)

    def _reports(self, names: Sequence[str], policy: BatchPolicy) -> Generator[ModuleReport]:
        common: dict[str, Any] = {
            "names": names,
            "jobs": self.jobs,
            "timeout_s": self._timeout_s,
            "keep_decisions": True,
        }
        if not measure_of(self._problem).by_function:
            common["baselines"] = self._baselines
            return batch_rollout(self._corpus, policy, self._problem, **common)
        single = {"policy": lambda observation: policy([observation])[0]}
        return rollout(self._corpus, single, self._problem, in_order=False, **common)

    def _episodes(self, report: ModuleReport) -> Iterable[Episode]:
        (attempt,) = report.attempts
        rewards = report.rewards(attempt)
        contexts: defaultdict[str, list[Decision]] = defaultdict(list)
        for decision in attempt.decisions:
            contexts[decision.context].append(decision)
        for context, decisions in contexts.items():
            if context in rewards:
                yield Episode(
                    name=f"{report.module}:{context}" if context else report.module,
                    rows=raw_rows([each.payload for each in decisions], self._problem),
                    actions=np.frombuffer(
                        b"".join(each.advice for each in decisions), self._problem.advice.dtype
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


def _error_of(report: ModuleReport) -> str | None:
    if report.error is not None:
        return report.error
    return next((each.error for each in report.attempts if each.error is not None), None)

"""Runners as policies: what a compilation of the embedded LLVM asks, a runner answers."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Final

from mlgo_gym.base import ModelError, UsageError
from mlgo_gym.corpus import Module
from mlgo_gym.problems import Action, Answer, Policy, Problem, SentPolicy
from mlgo_gym.runners._base import MLModelRunner, RunnerFactory
from mlgo_gym.runners._load import RELEASE, RunnerOfMode
from mlgo_gym.stream import Header, Observation


class RunnerPolicy(Policy):
    """Answers with runners, made as LLVM makes its own: when the first observation has come.

    Args:
        factory: makes a runner for the specs that the observation's header announces, such as
            ``functools.partial(ModelUnderTrainingRunner, "model")``.
        keep: each thread keeps its runner for its next compilation, for runners that take time to
            make; closing the policy closes them. Otherwise each compilation has one of its own.

    >>> from mlgo_gym import SAMPLE_CORPUS, Compiler, Corpus, InliningForSize
    >>> from mlgo_gym.runners import NoInferenceModelRunner, RunnerPolicy
    >>> policy = RunnerPolicy(NoInferenceModelRunner)
    >>> with policy.begin(Corpus.load(SAMPLE_CORPUS)["scene.cpp"]) as answer:
    ...     callable(answer)
    True
    """

    def __init__(self, factory: RunnerFactory, *, keep: bool = False) -> None:
        self._factory = factory
        self._keep = keep
        self._own = threading.local()
        self._kept: list[_Session] = []
        self._sent: dict[Problem, SentPolicy | None] = {}

    def for_worker(self, problem: Problem) -> SentPolicy | None:
        """A model's machine code, where that is what answers."""
        if problem not in self._sent:
            self._sent[problem] = self._made_for_worker(problem)
        return self._sent[problem]

    def _made_for_worker(self, problem: Problem) -> SentPolicy | None:
        factory = self._factory
        if not isinstance(factory, RunnerOfMode) or factory.mode != RELEASE:
            return None
        checks = problem.for_worker()
        try:
            with factory(problem.layout.specs, problem.advice) as runner:
                found = runner.for_worker()
        except ModelError:  # whoever is asked here will say so
            return None
        if found is None or checks is None:
            return None
        about = {"kind": "native", "allowed": checks["allowed"]} | found[0]
        digest = hashlib.sha256(json.dumps(about).encode() + found[1])
        return SentPolicy(f"native-{digest.hexdigest()}", about, found[1])

    @contextmanager
    def begin(self, module: Module) -> Iterator[Answer]:  # noqa: ARG002
        """A runner for one compilation, which is told every context of it.

        The answer raises `UsageError` where the advice is not one number, and whatever making or
        evaluating the runner raises.
        """
        if self._keep:
            session = self._session()
            session.context = None
            yield session.answer
            return
        session = _Session(self._factory)
        try:
            yield session.answer
        finally:
            session.close()

    def close(self) -> None:
        """Close the runners that are kept; safe to call twice."""
        while self._kept:
            self._kept.pop().close()
        self._own = threading.local()

    def __reduce__(self) -> tuple[Callable[..., RunnerPolicy], tuple[RunnerFactory]]:
        """A copy makes runners of its own."""
        return partial(RunnerPolicy, keep=self._keep), (self._factory,)

    def _session(self) -> _Session:
        if not hasattr(self._own, "session"):
            self._own.session = _Session(self._factory)
            self._kept.append(self._own.session)
        session: _Session = self._own.session
        return session


class _Session:
    """A runner, once it has been asked for, and the context that it was told last."""

    def __init__(self, factory: RunnerFactory) -> None:
        self._factory: Final = factory
        self._runner: MLModelRunner | None = None
        self._header: Header | None = None
        self.context: str | None = None

    def answer(self, observation: Observation) -> Action:
        runner = self._runner
        if runner is None or observation.header is not self._header:
            runner = self._runner_for(observation.header)
        if observation.context != self.context:
            self.context = observation.context
            runner.switch_context(observation.context)
        runner.fill(observation.payload)
        action: Action = runner.evaluate().item()
        return action

    def close(self) -> None:
        if self._runner:
            self._runner.close()

    def _runner_for(self, header: Header) -> MLModelRunner:
        """The one there is, where it is for these features."""
        runner = self._runner
        if runner is None or runner.inputs != header.features:
            advice = header.advice
            if advice is None or advice.element_count != 1:
                raise UsageError(f"runner: expected an advice of one number, found {advice}")
            self.close()
            self._runner = runner = self._factory(header.features, advice)
        self._header = header
        return runner

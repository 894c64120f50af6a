"""Rollouts: policies over the modules of a corpus, each beside LLVM's own heuristic.

Every module is compiled once plainly and once under each policy, in the same worker, so that all
sizes come out of the same pipeline. Several workers share the modules, the largest first; reports
come in the corpus's order whatever the number of workers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from queue import SimpleQueue
from typing import BinaryIO, Final

import numpy as np

from mlgo_gym.baseline import relative_reduction
from mlgo_gym.corpus import Corpus, Module
from mlgo_gym.errors import CompilationError, InputError, OptionsError
from mlgo_gym.llvm.compilation import (
    DEFAULT_TIMEOUT_S,
    CompilationResult,
    Compiler,
    Policy,
    options_of,
)
from mlgo_gym.llvm.options import CompileOptions
from mlgo_gym.policies import PolicyFactory
from mlgo_gym.problems import Problem
from mlgo_gym.tensor_spec import TensorSpec
from mlgo_gym.training_log import Header, Observation, TrainingLogWriter

__all__ = ["Attempt", "Decision", "ModuleReport", "RolloutLog", "rollout"]


@dataclass(frozen=True, slots=True)
class Decision:
    """An observation's raw tensors and the action that answered it."""

    payload: bytes
    action: int


@dataclass(frozen=True, slots=True)
class Attempt:
    """One module compiled under one policy.

    Attributes:
        policy: the policy's name.
        result: what came out; ``None`` where it failed.
        error: why it failed.
        decisions: every decision, in order, where they were asked for.
    """

    policy: str
    result: CompilationResult | None
    error: str | None = None
    decisions: tuple[Decision, ...] = field(default=(), repr=False)


@dataclass(frozen=True, slots=True)
class ModuleReport:
    """One module under every policy.

    Attributes:
        module: the module's name.
        baseline: the plain compilation; ``None`` where it failed.
        attempts: one for each policy, in the order in which they were given.
        error: why the plain compilation failed; then there are no attempts.
    """

    module: str
    baseline: CompilationResult | None
    attempts: tuple[Attempt, ...]
    error: str | None = None

    @property
    def is_complete(self) -> bool:
        """Whether the plain compilation and every attempt have a result."""
        return self.baseline is not None and all(each.result for each in self.attempts)

    def attempt(self, policy: str) -> Attempt | None:
        """The attempt of a policy; ``None`` where the plain compilation failed."""
        return next((each for each in self.attempts if each.policy == policy), None)

    def without_decisions(self) -> ModuleReport:
        """The same report without the attempts' decisions, which take the most memory."""
        return replace(self, attempts=tuple(replace(each, decisions=()) for each in self.attempts))

    def reward(self, attempt: Attempt) -> float | None:
        """The share of the baseline's text that an attempt saved; ``None`` where one failed."""
        if self.baseline is None or attempt.result is None:
            return None
        return relative_reduction(attempt.result.text_size_bytes, self.baseline.text_size_bytes)


def rollout(
    corpus: Corpus,
    policies: Mapping[str, PolicyFactory],
    problem: Problem,
    *,
    names: Sequence[str] | None = None,
    opt_level: str | None = None,
    jobs: int = 1,
    timeout_s: float = DEFAULT_TIMEOUT_S,
    keep_decisions: bool = False,
    on_finished: Callable[[str], None] | None = None,
) -> Iterator[ModuleReport]:
    """Compile modules plainly and under each policy.

    A module that LLVM refuses, or crashes or hangs on, is reported with its error; the others
    go on. Closing the iterator early ends the workers.

    Args:
        corpus: where the modules are.
        policies: by name; each is made anew for each module.
        problem: what LLVM asks for.
        names: which modules, in which order; ``None`` takes all.
        opt_level: clang's level to compile at; ``None`` takes each module's own.
        jobs: how many workers compile at once.
        timeout_s: how long LLVM may take for one compilation, in seconds.
        keep_decisions: attempts hold their decisions.
        on_finished: called with a module's name when its report is ready, from any thread.

    Yields:
        One report for each module, in the order of the names.

    Raises:
        OptionsError: ``jobs`` is not above 0, or there is no such level.
    """
    if jobs < 1:
        raise OptionsError(f"jobs: expected a number above 0, found {jobs}")
    CompileOptions(opt_level)
    runner = _Runner(corpus, policies, problem, opt_level, keep_decisions=keep_decisions)
    names = corpus.names if names is None else tuple(dict.fromkeys(names))
    with ExitStack() as stack:
        compilers = [stack.enter_context(Compiler(timeout_s=timeout_s)) for _ in range(jobs)]
        for compiler in compilers:
            runner.idle.put(compiler)
        pool = stack.enter_context(ThreadPoolExecutor(jobs, "mlgo-gym-rollout"))
        futures: dict[str, Future[ModuleReport]] = {}
        for name in sorted(names, key=runner.size, reverse=True) if jobs > 1 else names:
            futures[name] = pool.submit(runner.run, name)
            if on_finished:
                futures[name].add_done_callback(partial(_call, on_finished, name))
        try:
            for name in names:
                yield futures.pop(name).result()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
            for compiler in compilers if futures else ():
                compiler.interrupt()


def _call(on_finished: Callable[[str], None], name: str, _: Future[ModuleReport]) -> None:
    on_finished(name)


class _Runner:
    """What the threads share; each takes an idle compiler for the time of one module."""

    def __init__(
        self,
        corpus: Corpus,
        policies: Mapping[str, PolicyFactory],
        problem: Problem,
        opt_level: str | None,
        *,
        keep_decisions: bool,
    ) -> None:
        self._corpus = corpus
        self._policies = policies
        self._problem = problem
        self._opt_level = opt_level
        self._keep_decisions = keep_decisions
        self.idle: Final[SimpleQueue[Compiler]] = SimpleQueue()

    def size(self, name: str) -> int:
        path = self._corpus.folder / f"{name}.bc"
        return path.stat().st_size if path.exists() else 0

    def run(self, name: str) -> ModuleReport:
        compiler = self.idle.get()
        try:
            module = self._corpus[name]
            options = options_of(module, self._opt_level)
            baseline = compiler.compile_module(module, options)
            attempts = tuple(
                self._attempt(compiler, module, options, policy) for policy in self._policies
            )
        except (CompilationError, InputError) as error:
            return ModuleReport(name, None, (), str(error))
        finally:
            self.idle.put(compiler)
        return ModuleReport(name, baseline, attempts)

    def _attempt(
        self, compiler: Compiler, module: Module, options: CompileOptions, name: str
    ) -> Attempt:
        policy = self._policies[name](module)
        decisions: list[Decision] = []
        if self._keep_decisions:
            policy = _recorded(policy, decisions)
        try:
            result = compiler.compile_module(module, options, problem=self._problem, policy=policy)
        except (CompilationError, InputError) as error:
            return Attempt(name, None, str(error), tuple(decisions))
        return Attempt(name, result, None, tuple(decisions))


def _recorded(policy: Policy, decisions: list[Decision]) -> Policy:
    def answer(observation: Observation) -> int:
        action = policy(observation)
        decisions.append(Decision(observation.payload, action))
        return action

    return answer


class RolloutLog:
    """A training log of rollouts: one context a module, named after it.

    An observation holds the problem's features, then what LLVM sends besides, then the action
    under the advice's name, which is the order of LLVM's own training logs. The score is
    ``reward``, ``float (1,)``: 0, and after a module's last decision the share of the baseline's
    text that was saved.
    """

    def __init__(self, file: BinaryIO, problem: Problem) -> None:
        self._advice = problem.advice
        score = TensorSpec("reward", "float", (1,))
        self._writer = TrainingLogWriter(file, Header((*problem.sent(), problem.advice), score))

    def write(self, report: ModuleReport) -> int:
        """Write the decisions of a report's one policy, if it has a result; returns how many."""
        if not report.attempts:
            return 0
        (attempt,) = report.attempts
        reward = report.reward(attempt)
        if reward is None:
            return 0
        self._writer.start_context(report.module)
        last = len(attempt.decisions) - 1
        for index, decision in enumerate(attempt.decisions):
            self._writer.log_observation(decision.payload + self._advice.encode(decision.action))
            self._writer.log_outcome(np.float32(reward if index == last else 0.0))
        return len(attempt.decisions)

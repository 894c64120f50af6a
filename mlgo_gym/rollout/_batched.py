"""Rollouts of a policy that answers several observations at once, such as a network.

One loop serves all workers. Whenever decisions are pending and nothing else has arrived, the policy
is called with all of them; each worker has at most one pending.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import ExitStack
from typing import Final

from mlgo_gym.corpus._corpus import Corpus
from mlgo_gym.errors import CompilationError, InputError, MlgoGymError, OptionsError, UsageError
from mlgo_gym.llvm._compilation import Compilation
from mlgo_gym.llvm._compiler import DEFAULT_TIMEOUT_S, Compiler, options_of
from mlgo_gym.llvm._result import CompilationResult
from mlgo_gym.llvm._waiting import wait_for_any
from mlgo_gym.llvm.command._options import CompileOptions
from mlgo_gym.problems._policy import Action
from mlgo_gym.problems._problem import Problem
from mlgo_gym.rollout._rollout import Attempt, Decision, ModuleReport
from mlgo_gym.scoring._measures import TextSize, measure_of
from mlgo_gym.stream._events import Observation

BatchPolicy = Callable[[Sequence[Observation]], Sequence[Action]]
"""Answers observations, of different compilations, in their order."""

BATCH: Final = "batch"
"""The name of the attempt in reports."""

_Work = Generator[Compilation | Observation, Action, ModuleReport]
"""One module: yields what it waits for, or what is to be answered."""


def batch_rollout(
    corpus: Corpus,
    policy: BatchPolicy,
    problem: Problem,
    *,
    names: Sequence[str] | None = None,
    opt_level: str | None = None,
    jobs: int = 1,
    timeout_s: float = DEFAULT_TIMEOUT_S,
    keep_decisions: bool = False,
    baselines: Mapping[str, CompilationResult] | None = None,
) -> Generator[ModuleReport]:
    """Compile modules plainly and under a policy, the largest first.

    As `mlgo_gym.rollout.rollout`; the policy is called in the caller's thread. Which observations
    come together depends on timing, so a policy whose answer to one depends on the others is not
    reproducible.

    Args:
        corpus: where the modules are.
        policy: answers the pending observations, at most ``jobs`` at once.
        problem: what LLVM asks for.
        names: which modules; ``None`` takes all.
        opt_level: clang's level to compile at; ``None`` takes each module's own.
        jobs: how many workers compile at once.
        timeout_s: how long LLVM may take for one compilation, in seconds.
        keep_decisions: attempts hold their decisions.
        baselines: plain compilations that are known already, by module; they are not repeated.

    Yields:
        One report for each module, as they are finished; its one attempt is called ``batch``.

    Raises:
        OptionsError: ``jobs`` is not above 0, there is no such level, or the problem is not
            measured by the size of the code.
        UsageError: the policy gave too few or too many answers.
    """
    if jobs < 1:
        raise OptionsError(f"jobs: expected a number above 0, found {jobs}")
    if not measure_of(problem).makes_objects:
        raise OptionsError(
            f"problem: expected one that is measured by the size of the code, found {problem.name}"
        )
    CompileOptions(opt_level)
    chosen = dict.fromkeys(corpus.names if names is None else names)
    queue = deque(sorted(chosen, key=corpus.size_bytes, reverse=True))
    with ExitStack() as stack:
        compilers = [stack.enter_context(Compiler(timeout_s=timeout_s)) for _ in range(jobs)]
        rows = [_Row(compiler) for compiler in compilers]
        for row in rows:
            stack.callback(row.close)
        while True:
            for row in rows:
                if row.is_idle and queue:
                    name = queue.popleft()
                    module = _Module(corpus, name, opt_level, (baselines or {}).get(name))
                    row.start(module.compiled(row.compiler, problem, keep_decisions))
            yield from [report for row in rows if (report := row.take_report())]
            busy = [row for row in rows if not row.is_idle]
            if not busy and not queue:
                return
            _turn(busy, policy)


def _turn(rows: Sequence[_Row], policy: BatchPolicy) -> None:
    """Take in what has come, waiting only where nothing is to be answered; answer all of it."""
    waiting = [row.compilation for row in rows if row.compilation]
    ready = waiting if any(row.observation for row in rows) else wait_for_any(waiting)
    for row in rows:
        if row.compilation in ready:
            row.look()
    asking = [(row, each) for row in rows if (each := row.observation)]
    if not asking:
        return
    actions = policy([observation for _, observation in asking])
    if len(actions) != len(asking):
        raise UsageError(f"policy: expected {len(asking)} answers, found {len(actions)}")
    for (row, _), action in zip(asking, actions, strict=True):
        row.answer(action)


class _Row:
    """A worker and the module that it has: waiting, asking, or done."""

    def __init__(self, compiler: Compiler) -> None:
        self.compiler = compiler
        self.compilation: Compilation | None = None
        self.observation: Observation | None = None
        self._report: ModuleReport | None = None
        self._work: _Work | None = None

    @property
    def is_idle(self) -> bool:
        return self._work is None and self._report is None

    def start(self, work: _Work) -> None:
        self._work = work
        self._advance(lambda: next(work))

    def look(self) -> None:
        work = self._work
        if work is None or self.compilation is None:
            return
        try:
            is_ready = self.compilation.is_ready()
        except MlgoGymError as error:
            failure = error  # the name is gone after this block
            self._advance(lambda: work.throw(failure))
            return
        if is_ready:
            self._advance(lambda: next(work))

    def answer(self, action: Action) -> None:
        if (work := self._work) is not None:
            self._advance(lambda: work.send(action))

    def take_report(self) -> ModuleReport | None:
        report, self._report = self._report, None
        return report

    def close(self) -> None:
        if self._work is not None:
            self._work.close()

    def _advance(self, step: Callable[[], Compilation | Observation]) -> None:
        self.compilation = self.observation = None
        try:
            event = step()
        except StopIteration as end:
            self._work, self._report = None, end.value
            return
        if isinstance(event, Compilation):
            self.compilation = event
        else:
            self.observation = event


class _Module:
    """What is done with a module: compiled plainly, unless that is known, and under the policy."""

    def __init__(
        self, corpus: Corpus, name: str, opt_level: str | None, known: CompilationResult | None
    ) -> None:
        self._corpus = corpus
        self._name = name
        self._opt_level = opt_level
        self._baseline = known

    def compiled(self, compiler: Compiler, problem: Problem, keep_decisions: bool) -> _Work:
        decisions: list[Decision] = []
        try:
            module = self._corpus[self._name]
            options = options_of(module, self._opt_level)
            if self._baseline is None:
                with compiler.start(module, None, options) as plain:
                    yield plain
                    plain.next_observation()
                    self._baseline = plain.result
            with compiler.start(module, problem, options) as compilation:
                yield compilation
                while (observation := compilation.next_observation()) is not None:
                    compilation.answer((yield observation))
                    if keep_decisions:
                        decisions.append(
                            Decision(
                                observation.payload, compilation.advice[-1], observation.context
                            )
                        )
                    yield compilation
                attempt = Attempt(BATCH, compilation.result, None, tuple(decisions))
        except (CompilationError, InputError) as error:
            if self._baseline is None:
                return ModuleReport(self._name, TextSize, None, (), str(error))
            attempt = Attempt(BATCH, None, str(error), tuple(decisions))
        return ModuleReport(self._name, TextSize, self._baseline, (attempt,))

"""Recorded answers as policies: modules are answered as traces say, functions as they once were."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace

from mlgo_gym.base import TraceError
from mlgo_gym.corpus import Module
from mlgo_gym.llvm import CompileOptions, llvm_version, recorded
from mlgo_gym.problems import Action, Answer, Policy, PolicyLike, Problem, SentPolicy, as_policy
from mlgo_gym.rollout._replay import compare_with_trace, options_of_trace, settings_of_problem
from mlgo_gym.rollout._trace import Trace
from mlgo_gym.stream import Observation


class RecordedPolicy(Policy):
    """Answers as traces do, and modules that have none as another policy does.

    A module is known by its hash. LLVM must ask as often as it did, and the same where the trace
    has observations.

    Args:
        traces: of modules.
        other: what answers modules that have none.

    >>> from mlgo_gym import SAMPLE_CORPUS, Compiler, Corpus, InliningForSize
    >>> from mlgo_gym.rollout import record
    >>> module, problem = Corpus.load(SAMPLE_CORPUS)["digest.c"], InliningForSize()
    >>> with Compiler() as compiler:
    ...     trace = record(compiler, module, problem, lambda observation: 0)
    ...     policy = RecordedPolicy([trace], problem.policy())
    ...     made = compiler.compile_module(module, problem=problem, policy=policy)
    >>> made.object_sha256 == trace.object_sha256
    True
    """

    def __init__(self, traces: Iterable[Trace], other: PolicyLike) -> None:
        self._traces: Mapping[str, Trace] = {each.module_sha256: each for each in traces}
        self._other = as_policy(other)

    def for_module(self, module: Module) -> Policy:
        """The recorded answers of a module, or the other policy's part in it."""
        trace = self._traces.get(module.sha256)
        return RecordedAnswers(trace) if trace else self._other.for_module(module)

    def begin(self, module: Module) -> AbstractContextManager[Answer]:
        """The answers to one module.

        Raises:
            TraceError: as from `RecordedAnswers.begin`.
        """
        return self.for_module(module).begin(module)


class RecordedAnswers(Policy):
    """The answers of one trace, given in the worker where there is nothing to compare.

    >>> from mlgo_gym import SAMPLE_CORPUS, Compiler, Corpus, InliningForSize
    >>> from mlgo_gym.rollout import record
    >>> module, problem = Corpus.load(SAMPLE_CORPUS)["digest.c"], InliningForSize()
    >>> with Compiler() as compiler:
    ...     trace = record(compiler, module, problem, lambda observation: 0)
    ...     made = compiler.compile_module(module, problem=problem, policy=RecordedAnswers(trace))
    >>> made.object_sha256 == trace.object_sha256
    True
    """

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self._asked = 0

    def for_module(self, module: Module) -> Policy:  # noqa: ARG002 (each counts for itself)
        """Return a policy that gives the recorded answers from the first on."""
        return RecordedAnswers(self._trace)

    @contextmanager
    def begin(self, module: Module) -> Iterator[Answer]:  # noqa: ARG002
        """The recorded answers.

        Raises:
            TraceError: at the end, LLVM has asked less often; of an answer, it asks more often, or
                something else.
        """
        trace, self._asked = self._trace, 0
        actions = trace.actions().ravel().tolist()

        def recorded(observation: Observation) -> Action:
            if self._asked >= len(actions):
                what = f"expected {len(actions)} decisions, found that LLVM asks for more"
                raise TraceError(trace.module, what)
            compare_with_trace(trace, self._asked, observation)
            self._asked += 1
            action: Action = actions[self._asked - 1]
            return action

        yield recorded
        if self._asked < len(actions):
            what = f"expected {len(actions)} decisions, found only {self._asked}"
            raise TraceError(trace.module, what)

    def for_worker(self, problem: Problem) -> SentPolicy | None:
        """Return the same answers for the worker, unless observations are to be compared."""
        if self._trace.features:
            return None
        advice = [each.tobytes() for each in self._trace.actions()]
        sent = recorded(problem, advice).get(problem)
        return replace(sent, keep=True) if sent else None

    def answered(self, decisions: Sequence[tuple[Observation, bytes]]) -> None:
        """Count what was answered in the worker."""
        self._asked += len(decisions)


class RecordedContexts(Policy):
    """Answers in each context as it was once answered there.

    Args:
        problem: what was asked for.
        answers: the raw advice of each context, in the order in which LLVM comes to them.
        left: functions in which it is not asked (`Policy.left`).

    >>> from mlgo_gym import SAMPLE_CORPUS, Compiler, Corpus, RegallocEviction
    >>> module, problem = Corpus.load(SAMPLE_CORPUS)["expr_vm.c"], RegallocEviction()
    >>> plain = RecordedContexts(problem, {}, left=["expr_run", "expr_disassemble"])
    >>> with Compiler() as compiler:
    ...     own = compiler.compile_module(module)
    ...     made = compiler.compile_module(module, problem=problem, policy=plain)
    >>> made.decisions, made.object_sha256 == own.object_sha256
    (0, True)
    """

    def __init__(
        self,
        problem: Problem,
        answers: Mapping[str, Sequence[bytes]],
        left: Collection[str] = (),
    ) -> None:
        self._problem = problem
        self._answers = answers
        self.left = left

    def begin(self, module: Module) -> AbstractContextManager[Answer]:
        """The recorded answers.

        Raises:
            TraceError: of an answer, LLVM asks where it did not, or more often.
        """

        def answer(observation: Observation) -> Action:
            known = self._answers.get(observation.context, ())
            if observation.index >= len(known):
                what = f"expected {len(known)} decisions, found that LLVM asks for more"
                raise TraceError(module.name, f"{observation.context!r}: {what}")
            action: Action = self._problem.advice.decode(known[observation.index]).item()
            return action

        return nullcontext(answer)

    def for_worker(self, problem: Problem) -> SentPolicy | None:
        """Return the same answers for the worker, one after the other."""
        advice = [each for known in self._answers.values() for each in known]
        return recorded(problem, advice).get(problem)


def check_settings(trace: Trace, problem: Problem, options: CompileOptions) -> None:
    """See that a trace was recorded as modules are compiled now.

    Raises:
        TraceError: another problem or LLVM, or a setting of another value; the message says which.
    """
    recorded = settings_of_problem(trace) | options_of_trace(trace).settings()
    recorded |= {"llvm_version": trace.llvm_version}
    found = problem.settings() | options.settings() | {"llvm_version": llvm_version()}
    for name in dict.fromkeys((*found, *recorded)):
        value = found.get(name)
        if name == "opt_level" and value is None:  # LLVM chooses, as it did
            continue
        if _plain(recorded.get(name)) != _plain(value):
            what = f"{name}: expected {recorded.get(name)}, found {value}"
            raise TraceError(trace.module, what)


def _plain(value: object) -> object:
    return list(value) if isinstance(value, tuple) else value

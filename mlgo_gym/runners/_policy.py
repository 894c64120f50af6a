"""Policies: runners that answer LLVM, functions that answer inside the worker, and many at once."""

from __future__ import annotations

import dis
import hashlib
import inspect
import json
import pkgutil
import textwrap
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from threading import Lock
from types import CodeType, FunctionType, ModuleType
from typing import Any, Final

from mlgo_gym.base import ModelError, UsageError
from mlgo_gym.corpus import Module
from mlgo_gym.problems import Action, Answer, Policy, Problem, SentPolicy
from mlgo_gym.runners._base import MLModelRunner, RunnerFactory
from mlgo_gym.runners._load import RELEASE, RunnerOfMode
from mlgo_gym.stream import Header, Observation

AnswerAll = Callable[[Sequence[Observation]], Sequence[Action]]
"""Answers observations, of different compilations, in their order."""


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


class WorkerPolicy(Policy):
    """Answers with a function inside the worker, where LLVM asks: no process is woken up for it.

    A function that a module of its name has is imported in the worker. Any other is sent as its
    source, and made there: it may use modules that are imported where it stands, and nothing else
    from around it. It runs where no file can be opened (`docs/explanation/threat-model.md`), and
    for each worker by itself, so what it changes is not seen here; what it raises is a
    `PolicyError`.

    Args:
        answer: from an observation to an action.

    Raises:
        UsageError: the function cannot be sent; the message says why.

    >>> from mlgo_gym import SAMPLE_CORPUS, Compiler, Corpus, InliningForSize
    >>> def small(observation):
    ...     return int(observation["callee_basic_block_count"][0] < 3)
    >>> module = Corpus.load(SAMPLE_CORPUS)["digest.c"]
    >>> with Compiler() as compiler:
    ...     result = compiler.compile_module(
    ...         module, problem=InliningForSize(), policy=WorkerPolicy(small)
    ...     )
    >>> result.decisions
    46
    """

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self._about, self._data = _described(answer)

    def begin(self, module: Module) -> AbstractContextManager[Answer]:  # noqa: ARG002
        """The function here, for what the worker leaves to its host."""
        return nullcontext(self._answer)

    def for_worker(self, problem: Problem) -> SentPolicy | None:
        """The function, where its answers can be checked there."""
        checks = problem.for_worker()
        if checks is None:
            return None
        about = self._about | checks
        digest = hashlib.sha256(json.dumps(about).encode() + self._data)
        return SentPolicy(f"function-{digest.hexdigest()}", about, self._data)


def _described(answer: Answer) -> tuple[dict[str, Any], bytes]:
    if not isinstance(answer, FunctionType):
        raise _refused(answer, f"expected a function, found {type(answer).__name__}")
    name = answer.__qualname__
    if answer.__module__ != "__main__" and "<" not in name:
        path = f"{answer.__module__}:{name}"
        try:
            found = pkgutil.resolve_name(path)
        except (ImportError, AttributeError, ValueError):
            found = None
        if found is answer:
            return {"kind": "function", "name": path, "imports": {"": answer.__module__}}, b""
    return _of_source(answer)


def _of_source(answer: FunctionType) -> tuple[dict[str, Any], bytes]:
    if answer.__name__ == "<lambda>":
        raise _refused(answer, "expected a name, which a lambda has not")
    if answer.__closure__:
        free = ", ".join(map(repr, answer.__code__.co_freevars))
        raise _refused(answer, f"expected nothing from around it but modules, found {free}")
    try:
        source = textwrap.dedent(inspect.getsource(answer))
    except (OSError, TypeError) as error:
        raise _refused(answer, f"its source cannot be read: {error}") from error
    imports = {}
    for name in _names(answer.__code__):
        value = answer.__globals__.get(name)
        if isinstance(value, ModuleType):
            imports[name] = value.__name__
        elif name in answer.__globals__:
            raise _refused(answer, f"expected nothing from around it but modules, found {name!r}")
    name = answer.__name__
    file = f"<{name}>"
    return {"kind": "source", "name": name, "file": file, "imports": imports}, source.encode()


def _names(code: CodeType) -> Iterator[str]:
    """The names that code looks up in what is around it, functions inside it included."""
    for instruction in dis.get_instructions(code):
        if instruction.opname in {"LOAD_GLOBAL", "LOAD_NAME"}:
            yield instruction.argval
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


def _refused(answer: Callable[..., Any], reason: str) -> UsageError:
    name = getattr(answer, "__qualname__", repr(answer))
    return UsageError(f"policy {name}: cannot be sent to a worker: {reason}")

"""`Compilation`: one module compiled once, with or without questions."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any, Final, NoReturn, Self

from mlgo_gym.base import (
    CompilationError,
    EnvironmentSetupError,
    InternalError,
    ModuleError,
    UsageError,
)
from mlgo_gym.llvm._branches import Branches, ForkRefusedError
from mlgo_gym.llvm._exchange import Exchange
from mlgo_gym.llvm._loading import load, recorded
from mlgo_gym.llvm._request import CompileRequest
from mlgo_gym.llvm._result import CompilationResult, Order, Product, settings_of
from mlgo_gym.llvm._timing import Answered
from mlgo_gym.llvm._watching import Watch
from mlgo_gym.llvm._worker_process import Worker
from mlgo_gym.llvm.inside._symbols import symbols
from mlgo_gym.problems import Action, Problem, problems
from mlgo_gym.stream import Observation

_ABANDON_TIMEOUT_S: Final = 1.0


def plain_options() -> tuple[str, ...]:
    """The options of all problems under which LLVM decides by itself."""
    kinds = problems().values()
    return tuple(option for kind in kinds for option in kind().default_options())


class Compilation(AbstractContextManager["Compilation"]):
    """One compilation that asks for advice. `mlgo_gym.llvm.Compiler.start` makes it.

    Iterate over its observations, and answer each before the next; or take them one at a time by
    `next_observation`, which returns ``None`` at the end.

    Every wait for LLVM counts against the deadline; the caller's own time does not. After an
    error the compilation is over, its worker is gone or idle, and the compiler can go on. To ask
    for what there is not, or not yet, is a `UsageError`.

    Attributes:
        is_replayed: it is a branch that was made by compiling again, not by forking a process.

    >>> from mlgo_gym import SAMPLE_CORPUS, Compiler, Corpus, InliningForSize
    >>> module = Corpus.load(SAMPLE_CORPUS)["digest.c"]
    >>> with Compiler() as compiler, compiler.start(module, InliningForSize()) as compilation:
    ...     for observation in compilation:
    ...         compilation.answer(int(observation["cost_estimate"][0] < 5))
    ...     compilation.result.decisions == compilation.decisions
    True
    """

    def __init__(
        self, order: Order, exchange: Exchange, branches: Branches, *, is_replayed: bool = False
    ) -> None:
        self.module: Final = order.module
        self.problems: Final = order.problems
        self.task: Final = order.task
        self.is_replayed: Final = is_replayed
        self._order = order
        self._branches = branches
        self._result: CompilationResult | None = None
        self._product: Product | None = None
        self._exchange = exchange
        self._watch = Watch(order.module.name, exchange, is_timed=order.task.debug_info)

    @classmethod
    def started(
        cls, worker: Worker, order: Order, branches: Branches, *, is_replayed: bool = False
    ) -> Self:
        """Have a worker begin; the worker of a replay is the compilation's own."""
        exchange = Exchange(
            worker,
            order.module,
            order.timeout_s,
            order.problems,
            order.inside,
            keep_stderr=order.keep_stderr or order.task.print_frequencies or order.task.estimates,
            owns_worker=is_replayed,
        )
        compilation = cls(order, exchange, branches, is_replayed=is_replayed)
        exchange.send(compilation._request())
        return compilation

    def take_kept(self, problem: Problem) -> Sequence[tuple[Observation, bytes]]:
        """Return the decisions made in the worker since the last call, where they are kept.

        It is known once a question has come that was left to its host, or the end.
        """
        return self._exchange.take_kept(problem)

    def _request(self) -> CompileRequest:
        return CompileRequest(
            is_text=self.module.is_text,
            verify=self.module.sha256 not in self._exchange.worker.verified,
            is_forkable=self.is_forkable,
            target=self._order.options.target(),
            task=self.task,
            keep_object=self._order.keep_object,
            plain_options=plain_options(),
            advisor_options=self._exchange.advisor_options(),
            asking=self._exchange.asking(),
            symbols=symbols() if self._looks_inside else {},
            llvm_options=self._order.options.llvm_options,
        )

    @property
    def _looks_inside(self) -> bool:
        return self.task.looks_inside or any(each.layout.derived for each in self.problems)

    @property
    def settings(self) -> dict[str, Any]:
        """The settings that decide the code besides the module, for the record."""
        return settings_of(self._order.options, self.problems)

    @property
    def is_forkable(self) -> bool:
        """Whether it can branch: the task can, and LLVM asks for one problem."""
        return self.task.is_forkable and len(self.problems) == 1

    @property
    def decisions(self) -> int:
        """How many observations have been answered."""
        return len(self._exchange.advice)

    @property
    def advice(self) -> tuple[bytes, ...]:
        """The raw tensors of the answers so far: what it takes to get here again."""
        return tuple(self._exchange.advice)

    @property
    def answers(self) -> Sequence[Answered]:
        """When it was asked and answered so far, if it has debug information or is watched."""
        return self._exchange.timing.answers if self._exchange.timing else ()

    @property
    def interest(self) -> Mapping[int, int]:
        """The descriptors to wait for, with their events of ``select.poll``."""
        return self._exchange.worker.interest

    @property
    def remaining_s(self) -> float:
        """How long LLVM may still take, in seconds."""
        return self._exchange.remaining_s

    @property
    def worker_pid(self) -> int:
        """The process id of the worker that compiles."""
        return self._exchange.worker.pid

    @property
    def llvm_version(self) -> str:
        """The LLVM that compiles."""
        return self._exchange.worker.versions["llvm"]

    @property
    def result(self) -> CompilationResult:
        """The object's result, once `next_observation` has returned ``None``."""
        if self._result is None:
            raise UsageError(f"module {self.module.name!r}: the compilation has no result")
        return self._result

    @property
    def product(self) -> Product:
        """The product of a task other than making an object, once it has ended."""
        if self._product is None:
            raise UsageError(f"module {self.module.name!r}: the compilation has no product")
        return self._product

    @property
    def asked_by(self) -> Problem:
        """The problem that the pending observation belongs to."""
        return self._question()[0]

    def as_sent(self, problem: Problem) -> Problem | None:
        """A problem as LLVM has described it (`Problem.as_sent`); ``None`` where it has not yet."""
        header = self._exchange.header(problem)
        return None if header is None else problem.as_sent(header)

    def take_stderr(self) -> str:
        """Return the text that LLVM has printed to its standard error since the last call.

        All that it printed before the pending observation, or until it ended, is there, if it was
        started with ``keep_stderr``; otherwise it is empty.
        """
        return self._exchange.take_stderr()

    def __iter__(self) -> Iterator[Observation]:
        """Yield each observation, once the one before has been answered.

        Raises:
            UsageError: an observation was not answered.
            ModuleError: LLVM refused the module.
            CompilationError: the worker died, or LLVM outran the deadline.
        """
        while (observation := self.next_observation()) is not None:
            yield observation
            if self._exchange.question and self._exchange.question[1] is observation:
                raise UsageError(
                    f"module {self.module.name!r}: expected an answer to each observation, found "
                    "none"
                )

    def next_observation(self) -> Observation | None:
        """Wait for the next question; ``None`` when the compilation has ended.

        Asking twice without an answer in between returns the same observation.

        Raises:
            ModuleError: LLVM refused the module.
            CompilationError: the worker died, or LLVM outran the deadline.
        """
        self._exchange.worker.check_owner(self.module.name)
        while not self._has_arrived():
            self._exchange.wait(self._exchange.remaining_s)
        question = self._exchange.question
        return question[1] if question else None

    def is_ready(self) -> bool:
        """Whether `next_observation` returns at once; takes in what has come, never waits."""
        self._exchange.worker.check_owner(self.module.name)
        if self._has_arrived():
            return True
        self._exchange.wait(0.0)
        return self._has_arrived()

    def charge(self, seconds: float) -> None:
        """Count time against the deadline: what a caller waited for several at once."""
        self._exchange.remaining_s -= seconds

    def answer(self, action: Action) -> None:
        """Answer the pending observation.

        Raises:
            UsageError: nothing is pending, or LLVM does not take this action; then the
                observation stays pending.
        """
        self._exchange.worker.check_owner(self.module.name)
        problem, observation = self._question()
        self._exchange.reply(problem, problem.encode_advice(action, observation))

    def fork(self) -> Compilation:
        """Branch off at the pending decision: a compilation that has come the same way.

        Both go on by themselves: each has its own answers, result and deadline, and closing one
        leaves the other alone. A branch is closed when it is finished; otherwise close it, it is a
        process. It can be forked again. Where the process of LLVM cannot be cloned, a new one
        compiles the module again up to this decision: slower, and `is_replayed` is true.

        Raises:
            UsageError: no decision is pending, LLVM asks for several problems, the task makes
                neither an object nor an allocation of registers, or there are as many branches as
                there may be; nothing has changed.
            CompilerCrashError: the worker died.
            CompilationTimeoutError: the worker did not answer before the deadline.
            EnvironmentSetupError: the system has no descriptors or processes left.
        """
        self._exchange.worker.check_owner(self.module.name)
        if self._exchange.question is None:
            raise UsageError(f"module {self.module.name!r}: fork: no decision is pending")
        if not self.is_forkable:
            raise UsageError(
                f"module {self.module.name!r}: fork: expected one problem, and an object or an "
                f"allocation to make, found {len(self.problems)} and {self.task.product}"
            )
        self._branches.make_room(self.module.name)
        if self._branches.by_replay:
            return self._replayed()
        try:
            exchange = self._exchange.fork(self.asked_by, keep_stderr=self.task.estimates)
        except ForkRefusedError as error:
            warnings.warn(f"fork: {error}; compiling again instead", RuntimeWarning, stacklevel=2)
            return self._replayed()
        except OSError as error:
            raise EnvironmentSetupError(f"fork: {error}") from error
        self._branches.add(exchange.worker)
        return Compilation(self._order, exchange, self._branches)

    def close(self) -> None:
        """End the compilation, finished or not; safe to call twice.

        What is left of it is answered cheaply for a moment, without code generation; a worker
        that has not finished by then is killed, and the compiler starts another. The worker of a
        branch is killed at once.
        """
        self._watch.end()
        if self._exchange.is_over or self._exchange.worker.is_disowned:
            return
        if self._exchange.owns_worker:
            self._exchange.abort()
            return
        try:
            self._exchange.cancel(_ABANDON_TIMEOUT_S)
            for observation in self:
                self.answer(self.asked_by.fallback_action(observation))
        except (CompilationError, ModuleError):
            return

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> NoReturn:
        raise UsageError(f"module {self.module.name!r}: a running compilation cannot be copied")

    def _question(self) -> tuple[Problem, Observation]:
        if self._exchange.question is None:
            raise UsageError(f"module {self.module.name!r}: no decision is pending")
        return self._exchange.question

    def _has_arrived(self) -> bool:
        """Whether an observation, or the end, is among what has come; keeps what came out."""
        if not self._exchange.poll():
            return False
        if self._exchange.answer is not None:
            self._keep(*self._exchange.answer)
            self._exchange.answer = None
        return True

    def _keep(self, answer: dict[str, Any], payload: bytes) -> None:
        if "cancelled" in answer:
            return
        self._watch.end(is_whole=True)
        record: dict[str, Any] = {
            "module_sha256": self.module.sha256,
            "settings": self.settings | {"opt_level": answer["opt_level"]},
            "llvm_version": self.llvm_version,
            "decisions": self.decisions,
        }
        if self.task.product == "object":
            printed = self._exchange.take_stderr() if self.task.estimates else None
            self._result = CompilationResult.of(self.module.name, answer, payload, record, printed)
        else:
            self._product = Product.of(answer, payload, self._exchange.take_stderr(), record)

    def _replayed(self) -> Compilation:
        worker = Worker(self._exchange.worker.llvm_options, self._exchange.worker.limits)
        inside = recorded(self.asked_by, self.advice)
        for sent in inside.values():
            load(worker, self.module, sent, self._order.timeout_s, plain_options())
        order = replace(self._order, keep_stderr=False, inside=inside)
        branch = Compilation.started(worker, order, self._branches, is_replayed=True)
        self._branches.add(worker)
        pending = branch.next_observation()
        while pending is not None and branch.decisions < self.decisions:
            branch.answer(self.asked_by.advice.decode(self.advice[branch.decisions]).item())
            pending = branch.next_observation()
        if pending is None or pending.payload != self._question()[1].payload:
            branch.close()
            raise InternalError(f"module {self.module.name!r}: the same answers led elsewhere")
        return branch

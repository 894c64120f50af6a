"""`Compilation`: one module compiled once, with or without questions.

`mlgo_gym.llvm.compiler` starts them. Take observations and answer them, in turns, until there is
none::

    with Compiler() as compiler:
        with compiler.start(module, InliningForSize()) as compilation:
            while (observation := compilation.next_observation()) is not None:
                compilation.answer(int(observation["cost_estimate"][0] < 5))
            print(compilation.result.text_size_bytes)
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from time import monotonic
from typing import Any, Final, NoReturn, Self

from mlgo_gym.channel import Channel
from mlgo_gym.corpus import Module
from mlgo_gym.errors import (
    CompilationTimeoutError,
    CompilerCrashError,
    EnvironmentSetupError,
    InternalError,
    ModuleError,
    UsageError,
)
from mlgo_gym.llvm.failures import timeout_error
from mlgo_gym.llvm.fork import Branches, ForkRefusedError, fork_worker
from mlgo_gym.llvm.options import CompileOptions
from mlgo_gym.llvm.result import CompilationResult
from mlgo_gym.llvm.worker import Worker, WorkerDiedError, crash_of
from mlgo_gym.problems import PROBLEMS, Problem
from mlgo_gym.training_log import Observation

__all__ = ["Compilation", "CompilationResult", "Policy"]

Policy = Callable[[Observation], int]
"""Whatever turns an observation into an action."""

_ABANDON_TIMEOUT_S: Final = 1.0


class Compilation:
    """One compilation that asks for advice. `mlgo_gym.llvm.compiler.Compiler.start` makes it.

    Every wait for LLVM counts against the deadline; the caller's own time does not. After an
    error the compilation is over, its worker is gone or idle, and the compiler can go on.

    Attributes:
        module: what is compiled.
        problem: what LLVM asks for.
        is_replayed: it is a branch that was made by compiling again, not by forking a process.
    """

    def __init__(
        self,
        worker: Worker,
        module: Module,
        options: CompileOptions,
        problem: Problem | None,
        *,
        timeout_s: float,
        keep_object: bool,
        branches: Branches,
    ) -> None:
        self.module: Final = module
        self.problem: Final = problem
        self.is_replayed = False
        self._branches = branches
        self._is_branch = False
        self._advice: list[bytes] = []
        self._keep_object = keep_object
        self._worker = worker
        self._options = options
        self._timeout_s = timeout_s
        self._remaining_s = timeout_s
        self._pending: Observation | None = None
        self._result: CompilationResult | None = None
        self._finished = False
        self._channel = Channel(problem.check_header) if problem else None
        try:
            if self._channel:
                worker.watch(self._channel.fileno())
            worker.send(self._request(), module.data)
        except BaseException:
            self._abort()
            raise

    def _request(self) -> dict[str, Any]:
        llvm_options = [each for kind in PROBLEMS for each in kind().default_options()]
        llvm_options += self._options.llvm_options
        if self.problem and self._channel:
            llvm_options += self.problem.advisor_options(self._channel.base)
        return {
            "op": "compile",
            "is_text": self.module.is_text,
            "verify": self.module.sha256 not in self._worker.verified,
            "target": self._options.target(),
            "llvm_options": llvm_options,
            "keep_object": self._keep_object,
            "is_forkable": self.problem is not None,
        }

    @property
    def settings(self) -> dict[str, Any]:
        """What decides the code besides the module, for the record."""
        return self._options.settings() | (self.problem.settings() if self.problem else {})

    @property
    def decisions(self) -> int:
        """How many observations have been answered."""
        return len(self._advice)

    @property
    def advice(self) -> tuple[bytes, ...]:
        """The raw tensors of the answers so far: what it takes to get here again."""
        return tuple(self._advice)

    @property
    def interest(self) -> Mapping[int, int]:
        """What to wait for: descriptors and the events of ``select.poll``."""
        return self._worker.interest

    @property
    def remaining_s(self) -> float:
        """How long LLVM may still take, in seconds."""
        return self._remaining_s

    @property
    def worker_pid(self) -> int:
        """The process id of the worker that compiles."""
        return self._worker.pid

    @property
    def llvm_version(self) -> str:
        """The LLVM that compiles."""
        return self._worker.versions["llvm"]

    @property
    def result(self) -> CompilationResult:
        """What came out, once `next_observation` has returned ``None``.

        Raises:
            UsageError: the compilation has not ended, or ended without a result.
        """
        if self._result is None:
            raise UsageError(f"module {self.module.name!r}: the compilation has no result")
        return self._result

    def next_observation(self) -> Observation | None:
        """Wait for the next question; ``None`` when the compilation has ended.

        Asking twice without an answer in between returns the same observation.

        Raises:
            ModuleError: LLVM refused the module.
            CompilerCrashError: the worker died.
            CompilationTimeoutError: LLVM outran the deadline.
            UsageError: this process was forked from the one that compiles.
        """
        self._check_owner()
        while not self._guarded(self._has_arrived):
            self._guarded(self._wait, self._remaining_s)
        return self._pending

    def is_ready(self) -> bool:
        """Whether `next_observation` returns at once; takes in what has come, never waits.

        Raises:
            MlgoGymError: as `next_observation` does.
        """
        self._check_owner()
        if not self._guarded(self._has_arrived):
            self._guarded(self._wait, 0.0)
        return self._guarded(self._has_arrived)

    def charge(self, seconds: float) -> None:
        """Count time against the deadline: what a caller waited for several at once."""
        self._remaining_s -= seconds

    def answer(self, action: int) -> None:
        """Answer the pending observation.

        Raises:
            UsageError: nothing is pending, or LLVM does not take this action; then the
                observation stays pending.
        """
        self._check_owner()
        if self._pending is None or self.problem is None or self._channel is None:
            raise UsageError(f"module {self.module.name!r}: no decision is pending")
        self._reply(self._channel, self.problem.encode_advice(action, self._pending))

    def fork(self) -> Compilation:
        """Branch off at the pending decision: a compilation that has come the same way.

        Both go on by themselves: each has its own answers, result and deadline, and closing one
        leaves the other alone. A branch is closed when it is finished; otherwise close it, it is a
        process. It can be forked again. Where the process of LLVM cannot be cloned, a new one
        compiles the module again up to this decision: slower, and `is_replayed` is true.

        Raises:
            UsageError: no decision is pending, or there are as many branches as there may be;
                nothing has changed.
            CompilerCrashError: the worker died.
            CompilationTimeoutError: the worker did not answer before the deadline.
            EnvironmentSetupError: the system has no descriptors or processes left.
        """
        self._check_owner()
        if self._pending is None or self._channel is None:
            raise UsageError(f"module {self.module.name!r}: fork: no decision is pending")
        self._branches.make_room(self.module.name)
        if self._branches.by_replay:
            return self._replayed()
        try:
            return self._forked(*fork_worker(self._worker, self._channel, self._remaining_s))
        except ForkRefusedError as error:
            warnings.warn(f"fork: {error}; compiling again instead", RuntimeWarning, stacklevel=2)
            return self._replayed()
        except WorkerDiedError as error:
            self._abort()
            raise crash_of(self.module.name, error) from error
        except TimeoutError as error:
            self._abort()
            raise self._timeout() from error
        except OSError as error:
            raise EnvironmentSetupError(f"fork: {error}") from error

    def close(self) -> None:
        """End the compilation, finished or not; safe to call twice.

        What is left of it is answered cheaply for a moment, without code generation; a worker
        that has not finished by then is killed, and the compiler starts another. The worker of a
        branch is killed at once.
        """
        if self._finished or self._worker.is_disowned:
            return
        if self._is_branch:
            self._abort()
            return
        self._remaining_s = min(self._remaining_s, _ABANDON_TIMEOUT_S)
        try:
            self._worker.send({"op": "cancel"})
            while (observation := self.next_observation()) is not None:
                self.answer(self._fallback(observation))
        except (CompilationTimeoutError, CompilerCrashError, ModuleError):
            return

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> NoReturn:
        raise UsageError(f"module {self.module.name!r}: a running compilation cannot be copied")

    def _guarded(self, step: Callable[..., bool], *arguments: float) -> bool:
        """Take a step; where it fails, the compilation is over."""
        try:
            return step(*arguments)
        except BaseException:
            self._abort()
            raise

    def _check_owner(self) -> None:
        if self._worker.is_disowned:
            raise UsageError(
                f"module {self.module.name!r}: the compilation belongs to the process that this "
                "one was forked from"
            )

    def _fallback(self, observation: Observation) -> int:
        if self.problem is None:
            raise InternalError("a compilation without a problem asked for advice")
        return self.problem.fallback_action(observation)

    def _has_arrived(self) -> bool:
        """Whether a whole observation, or the end, is among what has been taken in."""
        if self._pending is None and not self._finished:
            if self._channel and (observation := self._channel.next_observation()):
                self._pending = observation
            elif (frame := self._worker.take_frame()) is not None:
                self._finish(*frame)
        return self._pending is not None or self._finished

    def _wait(self, timeout_s: float) -> bool:
        """Take in what comes; whether any of it came over the channel."""
        start = monotonic()
        try:
            readable = self._worker.wait(timeout_s)
        except WorkerDiedError as error:
            raise crash_of(self.module.name, error) from error
        self._remaining_s -= monotonic() - start
        if readable and self._channel and not self._channel.receive():
            self._worker.unwatch(self._channel.fileno())
        if self._remaining_s <= 0:
            raise self._timeout()
        return readable

    def _timeout(self) -> CompilationTimeoutError:
        return timeout_error(self.module.name, self._timeout_s, self.decisions, self._worker)

    def _finish(self, answer: dict[str, Any], payload: bytes) -> None:
        self._release_channel()
        self._finished = True
        if self._is_branch:
            self._worker.kill()
        if "error" in answer:
            raise ModuleError(self.module.name, answer["error"])
        self._worker.verified.add(self.module.sha256)
        if "cancelled" in answer:
            return
        self._result = CompilationResult(
            module=self.module.name,
            module_sha256=self.module.sha256,
            settings=self.settings | {"opt_level": answer["opt_level"]},
            llvm_version=self._worker.versions["llvm"],
            decisions=self.decisions,
            sections=tuple((name, size) for name, size in answer["sections"]),
            object_sha256=answer["object_sha256"],
            object_bytes=payload or None,
        )

    def _reply(self, channel: Channel, advice: bytes) -> None:
        self._pending = None
        self._advice.append(advice)
        channel.reply(advice)

    def _forked(self, worker: Worker, channel: Channel) -> Compilation:
        branch = type(self).__new__(type(self))
        vars(branch).update(
            vars(self),
            _advice=list(self._advice),
            _is_branch=True,
            _worker=worker,
            _channel=channel,
            is_replayed=False,
        )
        worker.watch(channel.fileno())
        self._branches.add(worker)
        return branch

    def _replayed(self) -> Compilation:
        branch = Compilation(
            Worker(self._worker.llvm_options),
            self.module,
            self._options,
            self.problem,
            timeout_s=self._timeout_s,
            keep_object=self._keep_object,
            branches=self._branches,
        )
        branch._is_branch = branch.is_replayed = True
        self._branches.add(branch._worker)
        for advice in self._advice:
            if branch.next_observation() and branch._channel:
                branch._reply(branch._channel, advice)
        pending = branch.next_observation()
        if pending is None or self._pending is None or pending.payload != self._pending.payload:
            branch.close()
            raise InternalError(f"module {self.module.name!r}: the same answers led elsewhere")
        return branch

    def _abort(self) -> None:
        # LLVM may still be waiting for advice that will never come.
        if self._is_branch or not self._finished:
            self._worker.kill()
        self._release_channel()
        self._finished = True

    def _release_channel(self) -> None:
        if self._channel:
            self._worker.unwatch(self._channel.fileno())
            self._channel.close()
            self._channel = None

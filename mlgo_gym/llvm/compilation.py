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

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, Final, NoReturn, Self

from mlgo_gym.channel import Channel
from mlgo_gym.corpus import Module
from mlgo_gym.errors import (
    CompilationTimeoutError,
    CompilerCrashError,
    ModuleError,
    UsageError,
)
from mlgo_gym.llvm.options import CompileOptions
from mlgo_gym.llvm.task import COMPILE, Task
from mlgo_gym.llvm.worker import Worker, WorkerDiedError, crash_of
from mlgo_gym.problems import PROBLEMS, Action, Problem
from mlgo_gym.training_log import Observation

__all__ = ["Compilation", "CompilationResult", "Policy", "Product"]

Policy = Callable[[Observation], Action]
"""Whatever turns an observation into an action."""

_ABANDON_TIMEOUT_S: Final = 1.0
_TEXT: Final = (".text", ".ltext", "__text")


@dataclass(frozen=True, slots=True)
class CompilationResult:
    """What came out of a compilation.

    Attributes:
        module: the module's name.
        module_sha256: the hash of the module's bytes.
        settings: what decided the code besides: level, models, problem and its settings.
        llvm_version: the LLVM that compiled.
        decisions: how many observations were answered.
        sections: name and size in bytes of each section of the object, in its order.
        object_sha256: the hash of the object's bytes.
        object_bytes: the object, where it was asked for.
    """

    module: str
    module_sha256: str
    settings: Mapping[str, Any]
    llvm_version: str
    decisions: int
    sections: tuple[tuple[str, int], ...] = field(repr=False)
    object_sha256: str
    object_bytes: bytes | None = field(default=None, repr=False)

    @property
    def text_size_bytes(self) -> int:
        """The size of the code: the sum of the ``.text*`` sections.

        Their names in the large code model (``.ltext``) and in Mach-O (``__text``) count too.
        """
        return sum(size for name, size in self.sections if name.startswith(_TEXT))

    @property
    def score(self) -> float:
        """What policies are compared by: the size of the code, in bytes."""
        return self.text_size_bytes

    @property
    def digest(self) -> str:
        """The hash of what came out: the object's."""
        return self.object_sha256

    def record(self) -> dict[str, Any]:
        """The result as JSON values: score, hash and settings."""
        return {
            "text_size_bytes": self.text_size_bytes,
            "object_sha256": self.object_sha256,
            "settings": dict(self.settings),
        }


@dataclass(frozen=True, slots=True)
class Product:
    """What a task other than making an object hands back.

    Attributes:
        module_sha256: the hash of the module's bytes.
        settings: what decided it besides: level, models, problems and their settings.
        llvm_version: the LLVM that compiled.
        decisions: how many observations were answered.
        opt_level: the level that the module was optimised at, or is to be emitted at.
        data: the bytes of the product; of functions, one after the other.
        sizes: of functions, how many of the bytes each has.
        stderr: what LLVM printed to its standard error, where it was asked to print something.
    """

    module_sha256: str
    settings: Mapping[str, Any]
    llvm_version: str
    decisions: int
    opt_level: str
    data: bytes = field(repr=False)
    sizes: tuple[int, ...] = ()
    stderr: str = field(default="", repr=False)


class Compilation:
    """One compilation that asks for advice. `mlgo_gym.llvm.compiler.Compiler.start` makes it.

    Every wait for LLVM counts against the deadline; the caller's own time does not. After an
    error the compilation is over, its worker is gone or idle, and the compiler can go on.
    """

    def __init__(
        self,
        worker: Worker,
        module: Module,
        options: CompileOptions,
        problems: Sequence[Problem],
        *,
        timeout_s: float,
        keep_object: bool,
        task: Task = COMPILE,
    ) -> None:
        self.module: Final = module
        self.problems: Final = tuple(problems)
        self.task: Final = task
        self._worker = worker
        self._options = options
        self._timeout_s = timeout_s
        self._remaining_s = timeout_s
        self._pending: tuple[Problem, Observation] | None = None
        self._decisions = 0
        self._result: CompilationResult | None = None
        self._product: Product | None = None
        self._finished = False
        self._channels: dict[Problem, Channel] = {}
        try:
            for problem in self.problems:
                self._channels[problem] = Channel(problem.check_header)
                worker.watch(self._channels[problem].fileno())
            worker.keep_stderr(task.print_frequencies)
            worker.send(self._request(keep_object=keep_object), module.data)
        except BaseException:
            self._abort()
            raise

    def _request(self, *, keep_object: bool) -> dict[str, Any]:
        llvm_options = [each for kind in PROBLEMS for each in kind().default_options()]
        llvm_options += self._options.llvm_options
        for problem, channel in self._channels.items():
            llvm_options += problem.advisor_options(channel.base)
        return {
            "op": "compile",
            "is_text": self.module.is_text,
            "verify": self.module.sha256 not in self._worker.verified,
            "target": self._options.target(),
            "llvm_options": [*llvm_options, *self.task.llvm_options()],
            "keep_object": keep_object,
            "task": self.task.settings(),
        }

    @property
    def settings(self) -> dict[str, Any]:
        """What decides the code besides the module, for the record."""
        settings = self._options.settings()
        for problem in self.problems:
            settings |= problem.settings()
        if len(self.problems) > 1:
            settings["problem"] = [problem.name for problem in self.problems]
        return settings

    @property
    def decisions(self) -> int:
        """How many observations have been answered."""
        return self._decisions

    @property
    def result(self) -> CompilationResult:
        """What came out, once `next_observation` has returned ``None``.

        Raises:
            UsageError: the compilation has not ended, or ended without a result.
        """
        if self._result is None:
            raise UsageError(f"module {self.module.name!r}: the compilation has no result")
        return self._result

    @property
    def product(self) -> Product:
        """What came out of a task other than making an object, once it has ended.

        Raises:
            UsageError: the compilation has not ended, or ended without one.
        """
        if self._product is None:
            raise UsageError(f"module {self.module.name!r}: the compilation has no product")
        return self._product

    @property
    def asked_by(self) -> Problem:
        """The problem that the pending observation belongs to.

        Raises:
            UsageError: nothing is pending.
        """
        return self._question()[0]

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
        if self._pending is None and not self._finished:
            try:
                self._pending = self._wait_for_question()
            except BaseException:
                self._abort()
                raise
        return self._pending[1] if self._pending else None

    def answer(self, action: Action) -> None:
        """Answer the pending observation.

        Raises:
            UsageError: nothing is pending, or LLVM does not take this action; then the
                observation stays pending.
        """
        self._check_owner()
        problem, observation = self._question()
        advice = problem.encode_advice(action, observation)
        self._pending = None
        self._decisions += 1
        self._channels[problem].reply(advice)

    def close(self) -> None:
        """End the compilation, finished or not; safe to call twice.

        What is left of it is answered cheaply for a moment, without code generation; a worker
        that has not finished by then is killed, and the compiler starts another.
        """
        if self._finished or self._worker.is_disowned:
            return
        self._remaining_s = min(self._remaining_s, _ABANDON_TIMEOUT_S)
        try:
            self._worker.send({"op": "cancel"})
            while (observation := self.next_observation()) is not None:
                self.answer(self.asked_by.fallback_action(observation))
        except (CompilationTimeoutError, CompilerCrashError, ModuleError):
            return

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> NoReturn:
        raise UsageError(f"module {self.module.name!r}: a running compilation cannot be copied")

    def _check_owner(self) -> None:
        if self._worker.is_disowned:
            raise UsageError(
                f"module {self.module.name!r}: the compilation belongs to the process that this "
                "one was forked from"
            )

    def _question(self) -> tuple[Problem, Observation]:
        if self._pending is None:
            raise UsageError(f"module {self.module.name!r}: no decision is pending")
        return self._pending

    def _wait_for_question(self) -> tuple[Problem, Observation] | None:
        while True:
            for problem, channel in self._channels.items():
                if (observation := channel.next_observation()) is not None:
                    return problem, observation
            if (frame := self._worker.take_frame()) is not None:
                self._finish(*frame)
                return None
            self._wait()

    def _wait(self) -> None:
        start = monotonic()
        try:
            readable = self._worker.wait(self._remaining_s)
        except WorkerDiedError as error:
            raise crash_of(self.module.name, error) from error
        self._remaining_s -= monotonic() - start
        for channel in self._channels.values():
            if channel.fileno() in readable and not channel.receive():
                self._worker.unwatch(channel.fileno())
        if self._remaining_s <= 0:
            raise CompilationTimeoutError(
                self.module.name,
                f"LLVM took more than its {self._timeout_s:g} s after {self._decisions} decisions",
                exit_status=None,
                stderr_tail=self._worker.stderr_tail(),
            )

    def _finish(self, answer: dict[str, Any], payload: bytes) -> None:
        self._release_channels()
        self._finished = True
        if "error" in answer:
            raise ModuleError(self.module.name, answer["error"])
        self._worker.verified.add(self.module.sha256)
        if "cancelled" in answer:
            return
        if self.task.product != "object":
            self._product = Product(
                module_sha256=self.module.sha256,
                settings=self.settings | {"opt_level": answer["opt_level"]},
                llvm_version=self._worker.versions["llvm"],
                decisions=self._decisions,
                opt_level=answer["opt_level"],
                data=payload,
                sizes=tuple(answer.get("sizes", ())),
                stderr=self._worker.kept_stderr(),
            )
            return
        self._result = CompilationResult(
            module=self.module.name,
            module_sha256=self.module.sha256,
            settings=self.settings | {"opt_level": answer["opt_level"]},
            llvm_version=self._worker.versions["llvm"],
            decisions=self._decisions,
            sections=tuple((name, size) for name, size in answer["sections"]),
            object_sha256=answer["object_sha256"],
            object_bytes=payload or None,
        )

    def _abort(self) -> None:
        if not self._finished:  # LLVM may still be waiting for advice that will never come
            self._worker.kill()
        self._release_channels()
        self._finished = True

    def _release_channels(self) -> None:
        for channel in self._channels.values():
            self._worker.unwatch(channel.fileno())
            channel.close()
        self._channels.clear()

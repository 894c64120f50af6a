"""`Compiler`: LLVM as one worker process, replaced when it dies, hangs or has grown."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Final

from mlgo_gym.base import (
    EnvironmentSetupError,
    ModuleError,
    OptionsError,
    PolicyError,
    UsageError,
)
from mlgo_gym.corpus import Module
from mlgo_gym.llvm._branches import DEFAULT_BRANCH_LIMIT, Branches
from mlgo_gym.llvm._compilation import Compilation, plain_options
from mlgo_gym.llvm._exchange import Exchange
from mlgo_gym.llvm._limits import Limits, peak_bytes
from mlgo_gym.llvm._loading import load
from mlgo_gym.llvm._request import MAX_ANSWERERS, Request
from mlgo_gym.llvm._result import CompilationResult, Order, Product
from mlgo_gym.llvm._self_check import facilities_of, require
from mlgo_gym.llvm._task import COMPILE, Task
from mlgo_gym.llvm._waiting import Steps, run_to_end
from mlgo_gym.llvm._watching import told
from mlgo_gym.llvm._worker_process import Alone, Worker
from mlgo_gym.llvm.command._options import CompileOptions
from mlgo_gym.problems import PolicyLike, Problem, SentPolicy, as_policy

DEFAULT_TIMEOUT_S: Final = 300.0
DEFAULT_MEMORY_LIMIT_BYTES: Final = 1 << 29


class Compiler(AbstractContextManager["Compiler"]):
    """LLVM, as one worker process that is started when it is first needed.

    A module that LLVM refuses is a `ModuleError`; where it crashes or outruns its deadline, that is
    a `CompilationError`. One thread at a time uses it, but for `interrupt`: another is refused. A
    process that is forked from this one, or that gets a pickled copy, has a worker of its own.

    Attributes:
        timeout_s: how long LLVM may take for one compilation, in seconds; what the caller
            takes for its answers does not count.
        memory_limit_bytes: a worker whose resident memory is above it after a compilation is
            replaced before the next.
        peak_memory_bytes: how much memory a worker may have at any time, in bytes (Linux); to need
            more ends the compilation with a `CompilerCrashError`. ``None`` is as many MiB as the
            variable ``MLGO_MEMORY`` says, else 2048.
        branch_limit: how many branches of its compilations may live at once; they belong to
            whoever forks them, and closing the compiler leaves them alone.
        fork_by_replay: branches compile the module again up to the decision, also where the
            process could be forked.

    Raises:
        OptionsError: a limit is not a number above 0.

    >>> from mlgo_gym import SAMPLE_CORPUS, Compiler, Corpus
    >>> with Compiler() as compiler:
    ...     compiler.compile_module(Corpus.load(SAMPLE_CORPUS)["digest.c"]).text_size_bytes > 0
    True
    """

    def __init__(
        self,
        *,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        memory_limit_bytes: int = DEFAULT_MEMORY_LIMIT_BYTES,
        peak_memory_bytes: float | None = None,
        branch_limit: int = DEFAULT_BRANCH_LIMIT,
        fork_by_replay: bool = False,
    ) -> None:
        self._branches = Branches(branch_limit, by_replay=fork_by_replay)
        for name, value in (("timeout_s", timeout_s), ("memory_limit_bytes", memory_limit_bytes)):
            if not isinstance(value, int | float) or not value > 0:
                raise OptionsError(f"{name}: expected a number above 0, found {value!r}")
        self.timeout_s: Final = timeout_s
        self.memory_limit_bytes: Final = memory_limit_bytes
        self.peak_memory_bytes: Final = peak_bytes(peak_memory_bytes)
        self.branch_limit: Final = branch_limit
        self.fork_by_replay: Final = fork_by_replay
        self._limits: Final = Limits(self.peak_memory_bytes, timeout_s)
        self._alone: Final = Alone()
        self._worker: Worker | None = None
        self._current: Compilation | None = None
        self._closed = False
        self._functions: tuple[SentPolicy, ...] = ()
        self._is_checking = False

    @property
    def worker_pid(self) -> int | None:
        """The process id of the worker, where there is one now."""
        return self._worker.pid if self._worker and self._worker.is_alive() else None

    def start(
        self,
        module: Module,
        problems: Problem | Sequence[Problem] | None,
        options: CompileOptions | None = None,
        *,
        keep_object: bool = False,
        task: Task = COMPILE,
        keep_stderr: bool = False,
        inside: Mapping[Problem, SentPolicy] = MappingProxyType({}),
    ) -> Compilation:
        """Start compiling a module; an unfinished compilation is closed first.

        Args:
            module: what is compiled.
            problems: what LLVM asks for, one problem or several; ``None`` leaves all to LLVM's
                own heuristics.
            options: how it is compiled; ``None`` takes the module's command line, or where it
                has none, the level that its functions' attributes stand for.
            keep_object: the result holds the object's bytes.
            task: what is done with the module, and what comes out.
            keep_stderr: `Compilation.take_stderr` has what LLVM prints.
            inside: who answers in the worker (`Policy.for_worker`); only what they decline, and
                what other problems ask, is asked here.

        Raises:
            ModuleError: the module's command line cannot be honoured.
            OptionsError: the task emits what was optimised before, and the options have no level.
            EnvironmentSetupError: no worker can be started, or LLVM's memory is not as what is
                read of it expects (docs/explanation/llvm-memory.md).
            PolicyError: who is to answer in the worker cannot be loaded there.
            UsageError: the compiler is closed, or another thread is using it.
        """
        chosen = options or options_of(module)
        if not task.optimize and task.product == "machine code" and chosen.opt_level is None:
            raise OptionsError("opt_level: expected that of the optimised module, found None")
        asked = (problems,) if isinstance(problems, Problem) else tuple(problems or ())
        order = Order(module, chosen, asked, task, self.timeout_s, keep_object, keep_stderr, inside)
        with self._alone:
            self._end_current()
            self._check_llvm(order)
            worker = self._ready_worker(chosen.llvm_options)
            worker = self._with_policies(worker, order)
            self._current = Compilation.started(worker, order, self._branches)
            return self._current

    def as_sent(self, problem: Problem, module: Module) -> Problem:
        """A problem as this LLVM describes it when a module makes it ask: `Problem.as_sent`.

        Of the LLVM that is documented it is the problem itself.

        Raises:
            ModuleError: the module makes it ask nothing.
            EnvironmentSetupError: this LLVM does not send what the problem needs.
        """
        with self._alone, self.start(module, problem) as compilation:
            try:
                compilation.next_observation()
            except EnvironmentSetupError:  # it may send more than there is room for
                if compilation.as_sent(problem) is None:
                    raise
            found = compilation.as_sent(problem)
        if found is None:
            raise ModuleError(module.name, f"asks for no decision of {problem.name}")
        return found

    def compile_module(
        self,
        module: Module,
        options: CompileOptions | None = None,
        *,
        problem: Problem | None = None,
        policy: PolicyLike | None = None,
        also: Mapping[Problem, PolicyLike] = MappingProxyType({}),
        keep_object: bool = False,
        task: Task = COMPILE,
    ) -> CompilationResult:
        """Compile a module to its end; options, the object's bytes and the task are as in `start`.

        Without a problem all is left to LLVM's own heuristics. A plain function may be a policy;
        ``also`` are further problems of the same compilation, each with what answers it.

        Raises:
            UsageError: a problem without a policy, or a policy without a problem.
        """
        if (policy is None) != (problem is None):
            raise UsageError("compile_module: expected a problem with a policy, or neither")
        answers = {problem: policy} if problem is not None and policy is not None else {}
        answers |= also
        with self._alone:
            running = self.running(module, options, answers, task, keep_object=keep_object)
            return run_to_end(running).result

    def produce(
        self,
        module: Module,
        options: CompileOptions | None,
        task: Task,
        answers: Mapping[Problem, PolicyLike] = MappingProxyType({}),
    ) -> Product:
        """Do a task other than making an object; options are as in `start`.

        Problems that nothing answers are left to LLVM's own heuristics.
        """
        with self._alone:
            return run_to_end(self.running(module, options, answers, task)).product

    def running(
        self,
        module: Module,
        options: CompileOptions | None,
        answers: Mapping[Problem, PolicyLike] = MappingProxyType({}),
        task: Task = COMPILE,
        *,
        keep_object: bool = False,
    ) -> Steps[Compilation]:
        """`compile_module` and `produce`, for several at once (`llvm._waiting`)."""
        with ExitStack() as stack:
            policies = {
                problem: as_policy(policy).for_module(module) for problem, policy in answers.items()
            }
            asked = {
                problem: stack.enter_context(policy.begin(module))
                for problem, policy in policies.items()
            }
            sent = {problem: policy.for_worker(problem) for problem, policy in policies.items()}
            inside = {problem: told(each) for problem, each in sent.items() if each}
            left = {name for policy in policies.values() for name in policy.left}
            task = replace(task, left=tuple(sorted(left))) if left else task
            started = self.start(
                module, tuple(answers), options, keep_object=keep_object, task=task, inside=inside
            )
            compilation = stack.enter_context(started)
            yield compilation
            while True:
                observation = compilation.next_observation()
                for problem in inside:
                    policies[problem].answered(compilation.take_kept(problem))
                if observation is None:
                    return compilation
                compilation.answer(asked[compilation.asked_by](observation))
                yield compilation

    def inquire(
        self, module: Module, request: Request, llvm_options: tuple[str, ...] = ()
    ) -> tuple[dict[str, Any], bytes]:
        """Ask the worker something else about a module; an unfinished compilation is closed first.

        A worker for which other options of LLVM's own were chosen is replaced; it is the request
        that sets them. The answer is JSON values, the last lines that the worker has printed among
        them as ``stderr``, and bytes.
        """
        with self._alone:
            self._end_current()
            worker = self._ready_worker(llvm_options)
            answer, data = Exchange(worker, module, self.timeout_s).run(request)
            return answer | {"stderr": worker.stderr.tail()}, data

    def interrupt(self) -> None:
        """Kill the worker, from any thread, for good.

        What it compiles ends with `CompilerCrashError`; nothing more can be started.
        """
        self._closed = True
        if (worker := self._worker) is not None:
            worker.signal_kill()

    def close(self) -> None:
        """End the worker; safe to call twice."""
        if self._current:
            self._current.close()
        if self._worker:
            self._worker.close()
        self._worker = self._current = None
        self._closed = True

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> tuple[Callable[[], Compiler], tuple[()]]:
        """A copy has the same limits and a worker of its own."""
        names = (
            *("timeout_s", "memory_limit_bytes", "peak_memory_bytes"),
            *("branch_limit", "fork_by_replay"),
        )
        return functools.partial(Compiler, **{name: getattr(self, name) for name in names}), ()

    def _end_current(self) -> None:
        if self._closed:
            raise UsageError("compiler: closed")
        if self._current:
            self._current.close()

    def _check_llvm(self, order: Order) -> None:
        """See that what is read of LLVM's memory is there, before it is first read."""
        derives = [name for problem in order.problems for name in problem.layout.derived]
        facilities = facilities_of(derives, order.task, order.options)
        if not facilities or self._is_checking:
            return
        own = nullcontext(self)
        other = Compiler()
        self._is_checking = other._is_checking = True
        try:  # LLVM's own options may change what LLVM asks about a probe
            require(facilities, [other] if order.options.llvm_options else [own, other])
        except EnvironmentSetupError:
            if self._worker:
                self._worker.close()
            raise
        finally:
            self._is_checking = False

    def _with_policies(self, worker: Worker, order: Order) -> Worker:
        """The worker, or where policies import what cannot be read there, one that has it."""
        for sent in (part for each in order.inside.values() for part in each.parts()):
            raised = load(worker, order.module, sent, self.timeout_s, plain_options())
            if not raised:
                continue
            before = self._functions
            if sent in before or "imports" not in sent.about:
                raise PolicyError(raised)
            self._functions = (*before[1 - MAX_ANSWERERS :], sent)
            worker.close()
            try:
                return self._with_policies(self._ready_worker(worker.llvm_options), order)
            except PolicyError:
                self._functions = before
                raise
        return worker

    def _ready_worker(self, llvm_options: tuple[str, ...]) -> Worker:
        worker = self._worker
        if worker and not (
            worker.is_alive()
            and worker.rss_bytes <= self.memory_limit_bytes
            # They are process-wide, and what they were before cannot be had back.
            and worker.llvm_options == llvm_options
        ):
            worker.close()
            worker = None
        self._worker = worker or Worker(
            llvm_options, self._limits, self._alone, functions=self._functions
        )
        if self._closed:  # interrupted meanwhile
            self._worker.signal_kill()
        return self._worker


@functools.cache
def llvm_version() -> str:
    """The version of the embedded LLVM, which a worker is started for once."""
    worker = Worker()
    try:
        return worker.versions["llvm"]
    finally:
        worker.close()


def options_of(module: Module, opt_level: str | None = None) -> CompileOptions:
    """How a module is compiled: as its command line says, at another level if one is given.

    Raises:
        ModuleError: the command line cannot be honoured.
        OptionsError: there is no such level.

    >>> from mlgo_gym import SAMPLE_CORPUS, Corpus
    >>> options_of(Corpus.load(SAMPLE_CORPUS)["digest.c"]).opt_level
    'Oz'
    """
    if module.command is None:
        return CompileOptions().with_level(opt_level)
    try:
        options = CompileOptions.from_command(module.command, has_profile=module.has_profile)
    except OptionsError as error:
        raise ModuleError(module.name, str(error)) from error
    return options.with_level(opt_level)

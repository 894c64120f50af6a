"""A model at work: a module compiled with its advice and without, and what the linker takes.

The sizes compared are those of two objects of one pipeline. Assembly and optimised bitcode come
of one more compilation, which the same model answers alike.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, Literal

from mlgo_gym.corpus._corpus import Module
from mlgo_gym.errors import InternalError
from mlgo_gym.llvm._compiler import Compiler
from mlgo_gym.llvm._result import CompilationResult, Product
from mlgo_gym.llvm._task import ASSEMBLE, OPTIMIZE, Task
from mlgo_gym.llvm.command._options import CompileOptions
from mlgo_gym.policies._models import Model
from mlgo_gym.problems._inlining_for_size import InliningForSize
from mlgo_gym.problems._problem import Problem
from mlgo_gym.rollout._rollout import Attempt, Decision, ModuleReport, Recorded
from mlgo_gym.runners._policy import RunnerPolicy
from mlgo_gym.scoring._measures import measure_of

Form = Literal["object", "assembly", "bitcode"]
"""What comes out: an object, assembly, or bitcode as it is after optimisation."""

_TASKS: Final[Mapping[str, Task]] = MappingProxyType({"assembly": ASSEMBLE, "bitcode": OPTIMIZE})


@dataclass(frozen=True, slots=True)
class Deployed:
    """What came of a module.

    Attributes:
        report: its sizes, and the decisions where they were asked for.
        output: the object, assembly or bitcode.
    """

    report: ModuleReport
    output: bytes = field(repr=False)


def deploy(
    compiler: Compiler,
    module: Module,
    options: CompileOptions,
    model: Model | None,
    *,
    form: Form = "object",
    keep_decisions: bool = False,
) -> Deployed:
    """Compile a module with a model, and without it to compare.

    Args:
        compiler: what compiles.
        module: what is compiled.
        options: how.
        model: what answers LLVM; ``None`` leaves all to LLVM's own heuristics.
        form: what the output is.
        keep_decisions: the report holds every decision, for a training log.

    Raises:
        ModuleError: LLVM refused the module.
        CompilationError: LLVM crashed or outran its deadline.
        ModelError: the model does not fit what LLVM offers.
    """
    baseline = compiler.compile_module(module, options, keep_object=model is None)
    if model is None:
        report = _report(module, options, baseline, (), InliningForSize())
        made = baseline if form == "object" else compiler.produce(module, options, _TASKS[form])
        return Deployed(report, _bytes(made))
    decisions: list[Decision] = []
    task = _ModelAtWork(compiler, module, options, model)
    result = task.compile(decisions if keep_decisions else None)
    attempt = Attempt(model.name, result, None, tuple(decisions))
    report = _report(module, options, baseline, (attempt,), model.problem)
    return Deployed(report, _bytes(result if form == "object" else task.produce(_TASKS[form])))


def _report(
    module: Module,
    options: CompileOptions,
    baseline: CompilationResult,
    attempts: tuple[Attempt, ...],
    problem: Problem,
) -> ModuleReport:
    measure = measure_of(problem)
    return ModuleReport(module.name, measure, baseline, attempts, None, options.not_honoured)


@dataclass(frozen=True, slots=True)
class _ModelAtWork:
    """A module that is compiled with a model's advice."""

    compiler: Compiler
    module: Module
    options: CompileOptions
    model: Model

    def compile(self, decisions: list[Decision] | None) -> CompilationResult:
        problem = self.model.problem
        policy = RunnerPolicy(self.model.runner)
        return self.compiler.compile_module(
            self.module,
            self.options,
            problem=problem,
            policy=policy if decisions is None else Recorded(policy, problem, decisions),
            keep_object=True,
        )

    def produce(self, task: Task) -> Product:
        answers = {self.model.problem: RunnerPolicy(self.model.runner)}
        return self.compiler.produce(self.module, self.options, task, answers)


def _bytes(made: CompilationResult | Product) -> bytes:
    if isinstance(made, Product):
        return made.data
    if made.object_bytes is None:
        raise InternalError(f"module {made.module!r}: the compilation kept no output")
    return made.object_bytes

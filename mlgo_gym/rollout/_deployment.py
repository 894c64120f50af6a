"""A model at work: a module compiled with its advice and without, and what the linker takes.

The sizes compared are those of two objects of one pipeline. Assembly and optimised bitcode come
of one more compilation, which the same model answers alike.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType
from typing import Final, Literal

from mlgo_gym.corpus._corpus import Module
from mlgo_gym.llvm._compiler import DEFAULT_TIMEOUT_S, Compiler, options_of
from mlgo_gym.llvm._schedule import Done, Jobs, each
from mlgo_gym.llvm._task import ASSEMBLE, OPTIMIZE, Task
from mlgo_gym.llvm.command._options import CompileOptions
from mlgo_gym.policies._models import Model
from mlgo_gym.problems._inlining_for_size import InliningForSize
from mlgo_gym.problems._policy import PolicyLike
from mlgo_gym.problems._problem import Problem
from mlgo_gym.rollout._rollout import Attempt, Decision, ModuleReport, RecordingPolicy
from mlgo_gym.runners._policy import RunnerPolicy
from mlgo_gym.scoring._measures import ObjectUnit, TextSize, measure_of

Form = Literal["object", "assembly", "bitcode"]
"""What comes out: an object, assembly, or bitcode as it is after optimisation."""

_TASKS: Final[Mapping[str, Task]] = MappingProxyType({"assembly": ASSEMBLE, "bitcode": OPTIMIZE})


@dataclass(frozen=True, slots=True)
class Deployed:
    """What came of a module."""

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

    Without a model all is left to LLVM's own heuristics. Where decisions are kept, the report holds
    every one, for a training log.

    Raises:
        ModelError: the model does not fit what LLVM offers.

    >>> from mlgo_gym import SAMPLE_CORPUS, Compiler, Corpus, InliningForSize
    >>> corpus = Corpus.load(SAMPLE_CORPUS)
    >>> from mlgo_gym.llvm import options_of
    >>> module = corpus["digest.c"]
    >>> with Compiler() as compiler:
    ...     made = deploy(compiler, module, options_of(module), None, form="assembly")
    >>> b".text" in made.output
    True
    """
    problem = model.problem if model else InliningForSize()
    unit = ObjectUnit(compiler, module, options, problem, keep_object=True)
    baseline = made = unit.baseline()
    attempts: tuple[Attempt, ...] = ()
    answers: dict[Problem, PolicyLike] = {}
    if model is not None:
        decisions: list[Decision] = []
        policy = answers[problem] = RunnerPolicy(model.runner)
        recording = RecordingPolicy(policy, problem, decisions)
        made = unit.attempt(recording if keep_decisions else policy)
        attempts = (Attempt(model.name, made, None, tuple(decisions)),)
    lacking = options.not_honoured
    measure = measure_of(problem) if measure_of(problem).makes_objects else TextSize
    report = ModuleReport(module.name, measure, baseline, attempts, None, lacking)
    if form == "object":
        return Deployed(report, made.object_bytes or b"")
    return Deployed(report, compiler.produce(module, options, _TASKS[form], answers).data)


def deploy_modules(
    read: Callable[[str], Module],
    names: Iterable[str],
    model: Model | None,
    *,
    opt_level: str | None = None,
    jobs: Jobs = 1,
    timeout_s: float = DEFAULT_TIMEOUT_S,
    form: Form = "object",
    keep_decisions: bool = False,
) -> Generator[Done[str, Deployed]]:
    """The same for modules by their names, in order; one that fails does not end the rest."""

    def work(compiler: Compiler, name: str) -> Deployed:
        module = read(name)
        options = options_of(module, opt_level)
        return deploy(compiler, module, options, model, form=form, keep_decisions=keep_decisions)

    return each(names, work, partial(Compiler, timeout_s=timeout_s), jobs=jobs, in_order=True)

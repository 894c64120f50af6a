"""Policies at work: a module compiled with their advice and without, and what the linker takes.

The sizes compared are those of objects of one pipeline. Assembly and optimised bitcode come of one
more compilation, which the same policy answers alike.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType
from typing import Any, Final, Literal

from mlgo_gym.corpus import Module
from mlgo_gym.llvm import (
    ASSEMBLE,
    DEFAULT_TIMEOUT_S,
    OPTIMIZE,
    CompilationResult,
    CompileOptions,
    Compiler,
    Done,
    Jobs,
    Task,
    each,
    options_of,
)
from mlgo_gym.problems import PolicyLike, Problem
from mlgo_gym.rollout._measures import KeptObjectUnit, Measure, Result, TextSize, measure_of
from mlgo_gym.rollout._rollout import (
    BASELINE,
    Best,
    ModuleReport,
    Tries,
    attempted,
    joins,
    smallest_of,
)

Form = Literal["object", "assembly", "bitcode"]
"""The form of the output: an object, assembly, or bitcode as it is after optimisation."""

_TASKS: Final[Mapping[str, Task]] = MappingProxyType({"assembly": ASSEMBLE, "bitcode": OPTIMIZE})


@dataclass(frozen=True, slots=True)
class Deployed:
    """A deployed module."""

    report: ModuleReport
    output: bytes = field(repr=False)


def measure_of_objects(problem: Problem) -> Measure:
    """The problem's measure, or the size of code where the problem's makes no objects."""
    measure = measure_of(problem)
    return measure if measure.makes_objects else TextSize()


def deploy(
    compiler: Compiler,
    module: Module,
    options: CompileOptions,
    problem: Problem,
    policies: Mapping[str, PolicyLike] = MappingProxyType({}),
    *,
    form: Form = "object",
    keep_decisions: bool = False,
    keep_smaller: bool = False,
    also: Mapping[Problem, PolicyLike] = MappingProxyType({}),
) -> Deployed:
    """Compile a module with policies, and without them to compare.

    What comes out is the first policy's, or where the smaller is kept the best of all, LLVM's own
    among them and where none is better, of each function if the problem is scored by function;
    without a policy all is left to LLVM's own heuristics. ``also`` are further problems of the
    compilations with policies, each with what answers it; not where the smaller is kept. Where
    decisions are kept, the report holds every one, for a training log.

    Raises:
        ModelError: a model does not fit what LLVM offers.

    >>> from mlgo_gym import SAMPLE_CORPUS, Compiler, Corpus, InliningForSize
    >>> corpus = Corpus.load(SAMPLE_CORPUS)
    >>> from mlgo_gym.llvm import options_of
    >>> module = corpus["digest.c"]
    >>> with Compiler() as compiler:
    ...     made = deploy(compiler, module, options_of(module), InliningForSize(), form="assembly")
    >>> b".text" in made.output
    True
    """
    measure = measure_of_objects(problem)
    case = (compiler, module, options, problem)
    by_function = keep_smaller and joins(problem)
    tries = Tries(KeptObjectUnit(*case, also), problem, BASELINE, by_function=by_function)
    attempts = attempted(tries, policies, problem, keeps=keep_decisions)
    for attempt in attempts:
        if attempt.error:
            raise attempt.error
    chosen: Best = {"": next(iter(policies), BASELINE)}
    made: Result | None = tries.results[chosen[""]]
    if keep_smaller:
        chosen, smallest = smallest_of(case, tries, attempts, policies, measure)
        attempts.append(smallest)
        made = smallest.result
    baseline, lacking = tries.results[BASELINE], options.not_honoured
    report = ModuleReport(module.name, measure, baseline, tuple(attempts), None, lacking)
    output = made.object_bytes or b"" if isinstance(made, CompilationResult) else b""
    if form != "object":
        answering = tries.answering(chosen)
        answers = {problem: answering, **also} if answering else {}
        output = compiler.produce(module, options, _TASKS[form], answers).data
    return Deployed(report, output)


def deploy_modules(
    read: Callable[[str], Module],
    names: Iterable[str],
    problem: Problem,
    policies: Mapping[str, PolicyLike],
    *,
    opt_level: str | None = None,
    jobs: Jobs = 1,
    timeout_s: float = DEFAULT_TIMEOUT_S,
    **how: Any,
) -> Generator[Done[str, Deployed]]:
    """Deploy modules by their names, in order, with further keywords of `deploy`.

    One that fails does not end the rest.
    """

    def work(compiler: Compiler, name: str) -> Deployed:
        module = read(name)
        return deploy(compiler, module, options_of(module, opt_level), problem, policies, **how)

    return each(names, work, partial(Compiler, timeout_s=timeout_s), jobs=jobs, in_order=True)

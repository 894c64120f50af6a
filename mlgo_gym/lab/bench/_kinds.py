"""Kinds of suites: what is measured of a package, and what a suite of the kind has for that.

A new kind is a row of `KINDS`. What is measured rests on the answers of policies alone: whoever has
them gets the same objects, and the same numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from mlgo_gym.base import BenchmarkError
from mlgo_gym.corpus import Packages
from mlgo_gym.evaluation import Setting
from mlgo_gym.lab.programs import measured_programs, meter_named
from mlgo_gym.llvm import CompilationResult, Jobs
from mlgo_gym.problems import Problem
from mlgo_gym.rollout import (
    BASELINE,
    AllocationResult,
    Code,
    KeptText,
    Measure,
    ModuleReport,
    RecordedPolicy,
    Result,
    Trace,
    geometric_mean_ratio,
    linked_sizes,
    linked_text_bytes,
    measure_of,
)

_Result = TypeVar("_Result", CompilationResult, AllocationResult)

Values = Mapping[str, Mapping[str, float]]
"""Numbers by policy, LLVM's own among them, then by measure; less is better."""

TIERS: Final = "tiers"
"""The kind of suites of recordings, and what their one track is called."""

_KEPT_TEXT: Final = KeptText()
_HOTSPOT: Final = "HotSpot's rule"


@dataclass(frozen=True, slots=True)
class CompiledModule:
    """A module's traces, and its results by policy."""

    module: str
    traces: Mapping[str, Trace]
    results: Mapping[str, Result]


@dataclass(frozen=True, slots=True)
class CompiledPackage:
    """A package's modules, compiled, and their traces by policy and module."""

    packages: Packages
    modules: Sequence[CompiledModule]
    traces: Mapping[str, Mapping[str, Trace]]
    problem: Problem
    jobs: Jobs


def _compiled(report: ModuleReport, problem: Problem) -> CompiledModule:
    """The traces and objects of a module that was compiled to objects."""
    traces = {each.policy: each.trace(problem) for each in report.attempts}
    return CompiledModule(
        report.module,
        {name: trace for name, trace in traces.items() if trace},
        _results(report, CompilationResult),
    )


def _allocated(report: ModuleReport, problem: Problem) -> CompiledModule:
    """The traces of a module whose registers were allocated: the object is its machine code."""
    results = _results(report, AllocationResult)
    traces = {
        each.policy: Trace(
            module=report.module,
            module_sha256=report.module_sha256,
            settings=results[each.policy].settings,
            llvm_version=results[each.policy].llvm_version,
            advice_spec=problem.advice,
            advice=b"".join(decision.advice for decision in each.decisions),
            object_sha256=results[each.policy].machine_code_sha256,
            text_size_bytes=0,
        )
        for each in report.attempts
    }
    return CompiledModule(report.module, traces, results)


def _results(report: ModuleReport, kind: type[_Result]) -> dict[str, _Result]:
    return {name: each for name, each in report.results.items() if isinstance(each, kind)}


def _sizes(package: CompiledPackage) -> Values:
    """Bytes of code: of all objects, and of what a linker keeps of them."""
    values = {}
    for name in (BASELINE, *package.traces):
        given = [each.results[name] for each in package.modules]
        results = [each for each in given if isinstance(each, CompilationResult)]
        linked = linked_sizes([each.object_bytes or b"" for each in results])
        values[name] = {
            "icf": float(linked.icf),
            "gc": float(linked.gc),
            "linked": float(linked_text_bytes([Code.of(each) for each in results])),
            "text": float(sum(each.text_size_bytes for each in results)),
        }
    return values


def _spills(package: CompiledPackage) -> Values:
    """LLVM's score of the functions that ask: the geometric mean of the ratios to LLVM's own."""
    measure = measure_of(package.problem)
    values = {BASELINE: {"cost": 1.0}}
    for name in package.traces:
        scores: dict[tuple[str, str], float] = {}
        own: dict[tuple[str, str], float] = {}
        for each in package.modules:
            baseline = measure.parts(each.results[BASELINE])
            for function, score in measure.parts(each.results[name]).items():
                scores[each.module, function] = score
                own[each.module, function] = baseline[function]
        values[name] = {"cost": geometric_mean_ratio(scores, own).ratio}
    return values


def _instructions(package: CompiledPackage) -> Values:
    """Instructions that the package's programs execute: the sum over its workloads."""
    problem = package.problem
    recorded = {
        name: RecordedPolicy(each.values(), problem.policy())
        for name, each in package.traces.items()
    }
    totals = dict.fromkeys((BASELINE, *recorded), 0.0)
    setting = Setting(problem, jobs=package.jobs)
    meter = meter_named("instructions")
    for scores in measured_programs(package.packages.named, recorded, setting, [meter]):
        if scores.error:
            raise BenchmarkError(f"{scores.label}: {scores.error}")
        for name in totals:
            totals[name] += scores.readings[name][meter.name].value
    return {name: {"instructions": total} for name, total in totals.items()}


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of suite.

    Attributes:
        measures: the names of the numbers; policies are ranked by the first.
        values: the numbers of a compiled package; ``None`` where recordings are played instead.
        keeps: what is kept of a module's report.
        measure: how modules are compiled and compared; ``None`` for the problem's own way.
        options: clang's, which are added to each module's command.
        has_workloads: its corpora keep their workloads.
        baseline: the policy that others are compared with, in words.
        rival: the same in headings.
    """

    measures: tuple[str, ...]
    values: Callable[[CompiledPackage], Values] | None
    keeps: Callable[[ModuleReport, Problem], CompiledModule] = _compiled
    measure: Measure | None = _KEPT_TEXT
    options: tuple[str, ...] = ()
    has_workloads: bool = False
    baseline: str = "LLVM's own heuristic on the plain modules"
    rival: str = "LLVM"

    @property
    def is_recorded(self) -> bool:
        """Whether its suites have recordings in place of corpora."""
        return self.values is None


KINDS: Final[Mapping[str, Kind]] = {
    "size": Kind(
        ("icf", "gc", "linked", "text"),
        _sizes,
        options=("-ffunction-sections", "-fdata-sections", "-faddrsig"),
    ),
    "spill": Kind(("cost",), _spills, keeps=_allocated, measure=None),
    "speed": Kind(("instructions",), _instructions, has_workloads=True),
    TIERS: Kind(("seconds",), None, baseline=_HOTSPOT, rival=_HOTSPOT),
}
"""The kinds of suites, by name."""

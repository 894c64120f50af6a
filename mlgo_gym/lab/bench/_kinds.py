"""The measures of each kind of suite, and the traces that prove them.

A run compiles every module plainly and under each policy, and keeps the answers. What is measured
then rests on the answers alone: whoever has them gets the same objects, and the same numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from itertools import groupby
from typing import Final, TypeVar

from mlgo_gym.base import BenchmarkError
from mlgo_gym.corpus import Packages
from mlgo_gym.evaluation import Setting
from mlgo_gym.lab.bench._suite import Suite
from mlgo_gym.lab.programs import measured_programs, meter_named
from mlgo_gym.llvm import CompilationResult, Jobs
from mlgo_gym.problems import PolicyLike, Problem
from mlgo_gym.rollout import (
    BASELINE,
    AllocationResult,
    Code,
    KeptText,
    ModuleReport,
    RecordedPolicy,
    Result,
    Trace,
    geometric_mean_ratio,
    linked_sizes,
    linked_text_bytes,
    measure_of,
    rollout,
)

_Kind = TypeVar("_Kind", CompilationResult, AllocationResult)

Values = Mapping[str, Mapping[str, float]]
"""Numbers by policy, LLVM's own among them, then by measure; less is better."""


@dataclass(frozen=True, slots=True)
class PackageOutcome:
    """A package of a suite under every policy.

    Attributes:
        values: the numbers by policy, `BASELINE` among them, then by measure.
        traces: by policy, then by module.
    """

    track: str
    package: str
    values: Values
    traces: Mapping[str, Mapping[str, Trace]] = field(repr=False)


@dataclass(frozen=True, slots=True)
class _Compiled:
    """A module's traces, and its results by policy."""

    module: str
    traces: Mapping[str, Trace]
    results: Mapping[str, Result]


def outcomes(
    suite: Suite,
    policies: Mapping[str, PolicyLike],
    problem: Problem,
    *,
    tracks: Sequence[str] = (),
    jobs: Jobs = 1,
) -> Generator[PackageOutcome]:
    """Run policies over the modules of a suite, package by package.

    Args:
        suite: its files are here.
        policies: by name.
        problem: the suite's, with the settings that the policies need.
        tracks: which; all by default.
        jobs: how many workers compile at once.

    Raises:
        BenchmarkError: a module cannot be compiled, under a policy or without.
    """
    measure = _MEASURES[suite.kind]
    kept = _allocated if suite.kind == "spill" else _compiled
    for track in tracks or suite.tracks:
        packages = suite.modules(track)
        with closing(_reports(packages, policies, problem, suite.kind, jobs)) as reports:
            made = ((each.package, kept(each, problem)) for each in reports)
            for package, found in groupby(made, lambda each: each[0]):
                modules = [each for _, each in found]
                traces = {
                    name: {each.module: each.traces[name] for each in modules} for name in policies
                }
                part = packages.only(packages.by_package[package])
                values = measure(_Package(part, modules, traces, problem, jobs))
                yield PackageOutcome(track, package, values, traces)


def _reports(
    packages: Packages,
    policies: Mapping[str, PolicyLike],
    problem: Problem,
    kind: str,
    jobs: Jobs,
) -> Generator[ModuleReport]:
    measure = None if kind == "spill" else KeptText()
    reports = rollout(packages, policies, problem, jobs=jobs, measure=measure, keep_decisions=True)
    with closing(reports):
        for report in reports:
            for failure in report.failures:
                raise BenchmarkError(str(failure.within(str(report.key))))
            yield report


def _compiled(report: ModuleReport, problem: Problem) -> _Compiled:
    """The traces and objects of a module that was compiled to objects."""
    traces = {each.policy: each.trace(problem) for each in report.attempts}
    return _Compiled(
        report.module,
        {name: trace for name, trace in traces.items() if trace},
        _results(report, CompilationResult),
    )


def _allocated(report: ModuleReport, problem: Problem) -> _Compiled:
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
    return _Compiled(report.module, traces, results)


def _results(report: ModuleReport, kind: type[_Kind]) -> dict[str, _Kind]:
    return {name: each for name, each in report.results.items() if isinstance(each, kind)}


@dataclass(frozen=True, slots=True)
class _Package:
    """A package's modules, compiled, and their traces by policy and module."""

    packages: Packages
    modules: Sequence[_Compiled]
    traces: Mapping[str, Mapping[str, Trace]]
    problem: Problem
    jobs: Jobs


def _sizes(package: _Package) -> Values:
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


def _spills(package: _Package) -> Values:
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


def _instructions(package: _Package) -> Values:
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


_MEASURES: Final[Mapping[str, Callable[[_Package], Values]]] = {
    "size": _sizes,
    "spill": _spills,
    "speed": _instructions,
}

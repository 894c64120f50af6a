"""Policies run over a suite's packages, and the traces that prove what they answered.

A run compiles every module plainly and under each policy, and keeps the answers.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from itertools import groupby

from mlgo_gym.base import BenchmarkError
from mlgo_gym.corpus import Packages
from mlgo_gym.lab.bench._kinds import CompiledPackage, Values
from mlgo_gym.lab.bench._suite import Suite
from mlgo_gym.llvm import Jobs
from mlgo_gym.problems import PolicyLike, Problem
from mlgo_gym.rollout import Measure, ModuleReport, Trace, rollout


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
    kind = suite.traits
    if kind.values is None:
        raise BenchmarkError(f"suite {suite.name}: expected corpora, found recordings")
    for track in tracks or suite.tracks:
        packages = suite.modules(track)
        with closing(_reports(packages, policies, problem, kind.measure, jobs)) as reports:
            made = ((each.package, kind.keeps(each, problem)) for each in reports)
            for package, found in groupby(made, lambda each: each[0]):
                modules = [each for _, each in found]
                traces = {
                    name: {each.module: each.traces[name] for each in modules} for name in policies
                }
                part = packages.only(packages.by_package[package])
                values = kind.values(CompiledPackage(part, modules, traces, problem, jobs))
                yield PackageOutcome(track, package, values, traces)


def _reports(
    packages: Packages,
    policies: Mapping[str, PolicyLike],
    problem: Problem,
    measure: Measure | None,
    jobs: Jobs,
) -> Generator[ModuleReport]:
    reports = rollout(packages, policies, problem, jobs=jobs, measure=measure, keep_decisions=True)
    with closing(reports):
        for report in reports:
            for failure in report.failures:
                raise BenchmarkError(str(failure.within(str(report.key))))
            yield report

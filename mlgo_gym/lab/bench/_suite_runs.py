"""Running policies on a suite, and verifying what others ran.

A run compiles every module plainly and under each policy, and keeps the answers.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, Final

from corpus_tools.reading import brief
from mlgo_gym.base import BenchmarkError, TraceError
from mlgo_gym.corpus import ModuleKey, Packages
from mlgo_gym.lab.bench._kinds import TIERS, CompiledPackage, Values
from mlgo_gym.lab.bench._submission import (
    Submission,
    SuiteValues,
    decisions_path,
    trace_name,
)
from mlgo_gym.lab.bench._suite import BEST, Suite
from mlgo_gym.lab.tiers import Recording, Replay, TierPolicy, oracle_s, played, schedule_named
from mlgo_gym.llvm import Jobs
from mlgo_gym.problems import PolicyLike, Problem
from mlgo_gym.rollout import (
    BASELINE,
    Measure,
    ModuleReport,
    RecordedPolicy,
    Trace,
    problem_of,
    rollout,
)


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


_MAX_DECISIONS: Final = 1 << 26
_OWN_TIERS: Final = "hotspot"
"""Whose decisions a suite of tiers compares with: HotSpot's rule."""

Progress = Callable[[str], None]


def run(
    suite: Suite,
    policies: Mapping[str, PolicyLike],
    problem: Problem | None = None,
    *,
    jobs: Jobs = 1,
    progress: Progress = lambda _: None,
) -> Submission:
    """Run policies on a suite: one for each seed of the same thing.

    Args:
        suite: its files are here (`Suite.open`).
        policies: by the seeds' names.
        problem: the suite's, with the settings that the policies need; as it is by default.
        jobs: how many workers compile at once; the result does not depend on it.
        progress: called with the track and package that are done.

    Raises:
        BenchmarkError: a module cannot be compiled, or the problem is another one.

    >>> from mlgo_gym import InliningForSize
    >>> from mlgo_gym.lab.bench import sample_suite
    >>> with sample_suite(["digest.c"]) as suite:
    ...     submission = run(suite, {"0": InliningForSize.policy("never")})
    >>> sorted(submission.files)
    ['traces/local/0/sample/digest.c.trace', 'traces/plain/0/sample/digest.c.trace']
    """
    kind = suite.problem_kind()
    problem = problem or kind()
    if not isinstance(problem, kind):
        raise BenchmarkError(f"suite {suite.name}: expected {kind.name}, found {problem.name}")
    values: dict[str, dict[str, Any]] = {}
    files: dict[str, bytes] = {}
    with closing(outcomes(suite, policies, problem, jobs=jobs)) as found:
        for each in found:
            progress(f"{each.track}/{each.package}")
            values.setdefault(each.track, {})[each.package] = each.values
            for seed, traces in each.traces.items():
                for module, trace in traces.items():
                    files[trace_name(each.track, seed, each.package, module)] = trace.to_bytes()
    return Submission.of(suite, tuple(policies), values, files)


def verify(
    submission: Submission,
    suite: Suite,
    *,
    jobs: Jobs = 1,
    progress: Progress = lambda _: None,
) -> None:
    """Repeat every decision of a submission, and compare objects and numbers.

    Args:
        submission: as it was loaded.
        suite: its files are here.
        jobs: how many workers compile at once.
        progress: called with the track and package that are done.

    Raises:
        BenchmarkError: another suite or LLVM, a missing module, a trace of another module, another
            object, or another number; the message names the first.

    >>> from mlgo_gym import InliningForSize
    >>> from mlgo_gym.lab.bench import sample_suite
    >>> with sample_suite(["digest.c"]) as suite:
    ...     verify(run(suite, {"0": InliningForSize.policy("never")}), suite)
    """
    submission.card.check(suite)
    if suite.traits.is_recorded:
        _compare(submission, _replayed(submission, suite))
        return
    for track in suite.tracks:
        traces, problem = _traces(submission, suite, track)
        recorded = {
            seed: RecordedPolicy(kept.values(), problem.policy()) for seed, kept in traces.items()
        }
        try:
            with closing(outcomes(suite, recorded, problem, tracks=[track], jobs=jobs)) as found:
                for each in found:
                    _compare_objects(traces, each)
                    _compare(submission, {track: {each.package: each.values}})
                    progress(f"{track}/{each.package}")
        except TraceError as error:
            raise BenchmarkError(f"{track}: {error}") from error


def run_tiers(
    suite: Suite,
    policies: Mapping[str, TierPolicy],
    *,
    progress: Progress = lambda _: None,
) -> Submission:
    """Play the recordings of a suite of tiers under policies, one for each seed."""
    values: dict[str, Any] = {}
    files: dict[str, bytes] = {}
    for name in suite.packages:
        recording = Recording.load(suite.recording(name))
        values[name] = _own_seconds(recording)
        for seed, policy in policies.items():
            decisions = bytearray()
            replay = played(recording, _noting(policy, decisions))
            values[name][seed] = {"seconds": replay.total_s}
            files[decisions_path(seed, name)] = zlib.compress(bytes(decisions), 9)
        progress(name)
    return Submission.of(suite, tuple(policies), {TIERS: values}, files)


def _noting(policy: TierPolicy, decisions: bytearray) -> TierPolicy:
    def decide(replay: Replay) -> int:
        decisions.append(policy(replay))
        return decisions[-1]

    return decide


def _replayed(submission: Submission, suite: Suite) -> SuiteValues:
    values: dict[str, Any] = {}
    for name in suite.packages:
        recording = Recording.load(suite.recording(name))
        values[name] = _own_seconds(recording)
        for seed in submission.card.seeds:
            path = decisions_path(seed, name)
            decisions = _inflated(submission.files[path], path)
            values[name][seed] = {"seconds": _repeated_s(recording, decisions, path)}
    return {TIERS: values}


def _repeated_s(recording: Recording, decisions: bytes, path: str) -> float:
    left, taken = iter(decisions), bytearray()
    seconds = played(recording, _noting(lambda _: next(left, 0), taken)).total_s
    if taken != decisions:
        what = f"expected a decision for each of {len(taken)} events, found {len(decisions)}"
        raise BenchmarkError(f"{path}: {what}")
    return seconds


def _inflated(data: bytes, path: str) -> bytes:
    stream = zlib.decompressobj()
    try:
        found = stream.decompress(data, _MAX_DECISIONS + 1)
    except zlib.error as error:
        raise BenchmarkError(f"{path}: {error}") from error
    if len(found) > _MAX_DECISIONS:
        raise BenchmarkError(f"{path}: expected at most {_MAX_DECISIONS:,} decisions, found more")
    if not stream.eof or stream.unused_data:
        other = "more behind it" if stream.eof else "a part of one"
        raise BenchmarkError(f"{path}: expected a stream of zlib, found {other}")
    return found


def _own_seconds(recording: Recording) -> dict[str, dict[str, float]]:
    return {
        BASELINE: {"seconds": played(recording, schedule_named(_OWN_TIERS, 0)).total_s},
        BEST: {"seconds": oracle_s(recording, waits=True)},
    }


def _traces(
    submission: Submission, suite: Suite, track: str
) -> tuple[dict[str, dict[ModuleKey, Trace]], Problem]:
    """The traces of a track, by seed, and their problem."""
    traces: dict[str, dict[ModuleKey, Trace]] = {seed: {} for seed in submission.card.seeds}
    problem: Problem | None = None
    modules = suite.modules(track)
    for seed, kept in traces.items():
        for key in modules:
            name = trace_name(track, seed, key.package, key.name)
            trace = Trace.from_bytes(submission.files[name], name)
            if trace.module_sha256 != suite.module_sha256(track, key):
                raise BenchmarkError(f"{name}: expected the suite's module, found another one")
            own = problem_of(trace, {})
            if not isinstance(own, suite.problem_kind()) or own != (problem or own):
                expected = problem or suite.problem
                raise BenchmarkError(f"{name}: problem: expected {expected}, found {own}")
            problem, kept[key] = own, trace
    return traces, problem or suite.problem_kind()()


def _compare_objects(
    traces: Mapping[str, Mapping[ModuleKey, Trace]], found: PackageOutcome
) -> None:
    for seed, modules in found.traces.items():
        for module, trace in modules.items():
            expected = traces[seed][ModuleKey(found.package, module)].object_sha256
            if trace.object_sha256 != expected:
                name = trace_name(found.track, seed, found.package, module)
                what = f"expected an object of SHA-256 {expected[:12]}"
                raise BenchmarkError(f"{name}: {what}, found {trace.object_sha256[:12]}")


def _compare(submission: Submission, found: SuiteValues) -> None:
    for track, packages in found.items():
        for package, values in packages.items():
            claimed = submission.card.values[track][package]
            if claimed != values:
                raise BenchmarkError(
                    f"submission {submission.card.name}: {track}/{package}: expected the numbers "
                    f"that its traces come to, {brief(values)}, found {brief(claimed)}"
                )

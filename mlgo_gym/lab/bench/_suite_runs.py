"""Running policies on a suite, and verifying what others ran.

A run compiles every module plainly and under each policy, and keeps the answers.

A submission is a zip file::

    card.json                                   what it says of itself: `Card`
    traces/TRACK/SEED/PACKAGE/MODULE.trace      a recorded compilation (`mlgo_gym.rollout.Trace`)
    traces/tiers/SEED/PROGRAM.decisions         of a suite of tiers: a byte a decision, by zlib

The same answers make the same file.
"""

from __future__ import annotations

import hashlib
import json
import re
import zipfile
import zlib
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field, replace
from itertools import groupby
from pathlib import Path
from typing import Any, Final, Self

from corpus_tools.reading import Shape, brief
from mlgo_gym.base import (
    BenchmarkError,
    TraceError,
    open_zip,
    parse_json,
    read_bounded,
    replacing,
    wrong_name,
)
from mlgo_gym.corpus import ModuleKey, Packages
from mlgo_gym.lab.bench._suite import (
    BEST,
    NAME_EXPECTED,
    TIERS,
    CompiledPackage,
    Suite,
    Values,
    are_names,
    check_line,
    checked,
    is_name,
)
from mlgo_gym.lab.tiers import Recording, Replay, TierPolicy, oracle_s, played, schedule_named
from mlgo_gym.llvm import Jobs, embedded_version
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

CARD_FILE: Final = "card.json"
TRACES: Final = "traces"
VERIFIED: Final = ".verified.json"
"""The end of the name of what `bench verify` leaves beside a submission."""

_VERSION: Final = 1
_TEXTS: Final = ("suite", "suite_sha256", "llvm_version", "name", "authors", "about", "url")
_SHAPE: Final[dict[str, Shape]] = {
    **dict.fromkeys(_TEXTS, str),
    "seeds": [str],
    "sha256": {"*": str},
    "values": {"*": {"*": {"*": {"*": float}}}},
}
_URL: Final = re.compile(r"https?://[^\s()<>|\"'`\\\[\]]{1,1000}")
_MAX_CARD_BYTES: Final = 1 << 24
_MAX_BYTES: Final = 1 << 28
_MAX_FILES: Final = 1 << 17
_DATE: Final = (1980, 1, 1, 0, 0, 0)

SuiteValues = Mapping[str, Mapping[str, Mapping[str, Mapping[str, float]]]]
"""Numbers by track, by package, by policy (LLVM's own among them), and by measure."""

_MAX_DECISIONS: Final = 1 << 26
_OWN_TIERS: Final = "hotspot"
"""Whose decisions a suite of tiers compares with: HotSpot's rule."""


@dataclass(frozen=True, slots=True)
class Card:
    """The facts of a submission.

    Attributes:
        name: what the table calls it; empty until it is submitted.
        authors: who made it.
        about: a sentence for people.
        url: where it is described.
        suite: the suite's name.
        suite_sha256: `Suite.sha256`.
        llvm_version: of the embedded compiler.
        seeds: the policies, one for each seed.
        values: what they come to, LLVM's own heuristic among them.
        sha256: the hash of each file of the traces, by its path.
    """

    suite: str
    suite_sha256: str
    llvm_version: str
    seeds: tuple[str, ...]
    values: SuiteValues = field(repr=False)
    sha256: Mapping[str, str] = field(repr=False)
    name: str = ""
    authors: str = ""
    about: str = ""
    url: str = ""

    @classmethod
    def from_json(cls, value: Any, where: str) -> Self:
        """Check what was read from a file."""
        found = checked(value, _SHAPE, _VERSION, where)
        _check_url(found["url"], where)
        if found["name"]:
            _check_name(found["name"], f"{where}: name")
        seeds = found["seeds"]
        if not seeds or not are_names(seeds) or {BASELINE, BEST} & set(seeds):
            raise BenchmarkError(f"{where}: seeds: expected their names, found {brief(seeds)}")
        if not all(wrong_name(name) is None for name in found["sha256"]):
            names = brief(found["sha256"])
            raise BenchmarkError(f"{where}: sha256: expected hashes by path, found {names}")
        return cls(**found | {"seeds": tuple(seeds)})

    def to_json(self) -> dict[str, Any]:
        """The content of `CARD_FILE`."""
        return {"version": _VERSION, **asdict(self)}

    def check(self, suite: Suite) -> None:
        """See that it is of this suite and this LLVM, and that nothing is missing or added."""
        where = f"submission {self.name or '?'}"
        for what, expected, found in (
            ("suite", suite.name, self.suite),
            ("suite_sha256", suite.sha256, self.suite_sha256),
            ("llvm_version", suite.llvm_version, self.llvm_version),
            ("the embedded LLVM", suite.llvm_version, embedded_version()),
        ):
            if expected != found:
                raise BenchmarkError(f"{where}: {what}: expected {expected}, found {found}")
        expected_values = {each: set(suite.packages) for each in suite.scored_tracks}
        if {track: set(packages) for track, packages in self.values.items()} != expected_values:
            found = ", ".join(f"{track}: {len(each)}" for track, each in self.values.items())
            expected = ", ".join(f"{track}: {len(each)}" for track, each in expected_values.items())
            what = f"expected numbers of the suite's packages, {expected}"
            raise BenchmarkError(f"{where}: values: {what}, found {found}")
        expected_files = set(self.files(suite))
        if other := sorted(expected_files ^ self.sha256.keys()):
            some = f"{len(other)} that are missing or added, first {other[0]}"
            raise BenchmarkError(f"{where}: expected a trace of every module, found {some}")

    def files(self, suite: Suite) -> Iterator[str]:
        """The paths of the traces that it must have."""
        if suite.traits.is_recorded:
            for seed in self.seeds:
                yield from (decisions_path(seed, name) for name in suite.packages)
        for track in suite.tracks:
            for key in suite.modules(track):
                yield from (trace_name(track, each, key.package, key.name) for each in self.seeds)


def trace_name(track: str, seed: str, package: str, module: str) -> str:
    """The path of a module's trace in a submission."""
    return f"{TRACES}/{track}/{seed}/{package}/{module}.trace"


def decisions_path(seed: str, program: str) -> str:
    """The path of the decisions on a recording."""
    return f"{TRACES}/{TIERS}/{seed}/{program}.decisions"


@dataclass(frozen=True, slots=True)
class Submission:
    """A card and the files of its traces, in memory.

    Attributes:
        card: what it says of itself.
        files: the bytes of each file of its traces, by its path.
        sha256: the hash of the file that it was loaded from; empty of a run.

    Raises:
        BenchmarkError: of methods, a file cannot be read, is damaged, or has something else in it.

    >>> from mlgo_gym import InliningForSize
    >>> from mlgo_gym.lab.bench import run, sample_suite
    >>> with sample_suite(["digest.c"]) as suite:
    ...     made = run(suite, {"0": InliningForSize.policy("never")})
    >>> made.named("never", "A. Author", "nothing is inlined", "").card.name
    'never'
    """

    card: Card
    files: Mapping[str, bytes] = field(repr=False)
    sha256: str = ""

    @classmethod
    def of(
        cls, suite: Suite, seeds: tuple[str, ...], values: SuiteValues, files: Mapping[str, bytes]
    ) -> Self:
        """The submission of a run, without a name yet."""
        hashes = {name: hashlib.sha256(data).hexdigest() for name, data in sorted(files.items())}
        card = Card(suite.name, suite.sha256, suite.llvm_version, seeds, values, hashes)
        return cls(card, files)

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read a file, and check that every trace has the hash that the card says."""
        try:
            data = read_bounded(path, _MAX_BYTES)
            with open_zip(data, _MAX_BYTES, _MAX_FILES) as archive:
                files = _read(archive, str(path))
        except OSError as error:
            raise BenchmarkError(f"{path}: cannot be read: {error.strerror}") from error
        except ValueError as error:
            raise BenchmarkError(f"{path}: expected a submission, found: {error}") from error
        if CARD_FILE not in files:
            raise BenchmarkError(f"{path}: expected {CARD_FILE} in it, found none")
        try:
            value = parse_json(files.pop(CARD_FILE))
        except ValueError as error:
            raise BenchmarkError(f"{path}: {CARD_FILE}: {error}") from error
        card = Card.from_json(value, f"{path}: {CARD_FILE}")
        for name in sorted({*files, *card.sha256}):
            found = hashlib.sha256(files[name]).hexdigest() if name in files else "none"
            if found != card.sha256.get(name):
                expected = card.sha256.get(name, "no such file")
                what = f"expected SHA-256 {expected[:12]}, found {found[:12]}"
                raise BenchmarkError(f"{path}: {name}: {what}: the traces were altered")
        return cls(card, files, hashlib.sha256(data).hexdigest())

    def named(self, name: str, authors: str, about: str, url: str) -> Submission:
        """The same with a name, and who made it.

        Raises:
            BenchmarkError: a table cannot use the name or one of the texts.
        """
        _check_name(name, "name")
        check_line(authors, "authors")
        check_line(about, "about")
        _check_url(url, "--url")
        card = replace(self.card, name=name, authors=authors, about=about, url=url)
        return Submission(card, self.files)

    def save(self, path: Path) -> None:
        """Write the file."""
        text = json.dumps(self.card.to_json(), indent=1, sort_keys=True).encode()
        with replacing(path) as file, zipfile.ZipFile(file, "w") as archive:
            for name, data in sorted({CARD_FILE: text, **self.files}.items()):
                member = zipfile.ZipInfo(name, _DATE)
                member.compress_type, member.external_attr = zipfile.ZIP_DEFLATED, 0o644 << 16
                archive.writestr(member, data)


def _read(archive: zipfile.ZipFile, where: str) -> dict[str, bytes]:
    files: dict[str, bytes] = {}
    for member in archive.infolist():
        if wrong_name(member.filename) is not None or member.filename in files:
            raise BenchmarkError(f"{where}: expected files once each, found {member.filename!r}")
        if member.filename == CARD_FILE and member.file_size > _MAX_CARD_BYTES:
            raise BenchmarkError(
                f"{where}: {CARD_FILE}: expected at most {_MAX_CARD_BYTES:,} bytes"
            )
        with archive.open(member) as file:  # to read all of it would unpack more than it claims
            files[member.filename] = file.read(member.file_size)
    return files


def _check_name(name: str, where: str) -> None:
    if not is_name(name) or name == BASELINE:
        expected = f"expected {NAME_EXPECTED} other than {BASELINE!r}"
        raise BenchmarkError(f"{where}: {expected}, found {brief(name)}")


def _check_url(url: str, where: str) -> None:
    if url and not _URL.fullmatch(url):
        expected = "expected one of https or http without spaces, quotes and brackets"
        raise BenchmarkError(f"{where}: url: {expected}, found {brief(url)}")


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

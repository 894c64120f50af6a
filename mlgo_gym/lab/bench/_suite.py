"""Suites: modules that policies are compared on, each known by its hash.

A suite that ships is a description and the hashes of its files::

    suites/NAME.json     what it is: `Suite`
    suites/NAME.sha256   its files, as sha256sum writes them

Its folder has the files themselves::

    suite.json           the description
    SHA256SUMS           the hashes; ``sha256sum -c SHA256SUMS`` checks them
    packages.json        where each package is from, and its licence
    TRACK/PACKAGE/       a corpus
    recordings/          of a suite of tiers: what `mlgo-gym tiers record` has written

A new kind of suite is a row of `KINDS`. What is measured rests on the answers of policies alone:
whoever has them gets the same objects, and the same numbers.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final, Self, TypeVar

from corpus_tools.reading import Shape, brief, shaped
from mlgo_gym.base import BenchmarkError, read_bounded, read_json, wrong_name
from mlgo_gym.corpus import Corpus, ModuleKey, Packages
from mlgo_gym.evaluation import Setting
from mlgo_gym.lab.programs import measured_programs, meter_named
from mlgo_gym.llvm import CompilationResult, Jobs
from mlgo_gym.problems import Problem, problem_named
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

SUITE_FILE: Final = "suite.json"
SUMS_FILE: Final = "SHA256SUMS"
PACKAGES_FILE: Final = "packages.json"
RECORDINGS: Final = "recordings"
PLAIN: Final = "plain"
"""The modules as clang makes them."""

LOCAL: Final = "local"
"""The same, with the functions local that no other module of the package has."""

BEST: Final = "best"
"""The name of the best that is known among the policies of a suite of tiers."""

_SHIPPED: Final = Path(__file__).parent / "suites"
_VERSION: Final = 1
_WORDS: Final = ("llvm_version", "problem", "opt_level", "split")
_SHAPE: Final[dict[str, Shape]] = {
    **dict.fromkeys(("name", "kind", "about", *_WORDS), str),
    **{key: [str] for key in ("tracks", "packages")},
}
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,63}")
NAME_EXPECTED: Final = "up to 64 letters, digits and ._+-"
_MAX_TEXT: Final = 2048
_MAX_JSON_BYTES: Final = 1 << 20
_MAX_SUMS_BYTES: Final = 1 << 26
MAX_FILE_BYTES: Final = 1 << 30
_DIGITS: Final = 64
_SHOWN: Final = 3


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


@dataclass(frozen=True, slots=True)
class Suite:
    """Packages that policies are compared on.

    Attributes:
        name: with its version at the end.
        kind: what is measured: one of `KINDS`.
        about: a sentence for people.
        llvm_version: of the embedded compiler.
        problem: what LLVM asks for; empty for a suite of tiers.
        opt_level: clang's level of the modules.
        split: of the recipes.
        tracks: `PLAIN`, and `LOCAL` if it has that.
        packages: the recipes' names.
        sums: the hashes of the files, by their paths below the folder.
        folder: where the files are; ``None`` where they are not here yet.

    >>> Suite.shipped("size-v1-mini").kind
    'size'
    """

    name: str
    kind: str
    about: str
    llvm_version: str
    problem: str
    opt_level: str
    split: str
    tracks: tuple[str, ...]
    packages: tuple[str, ...]
    sums: Mapping[str, str] = field(default_factory=dict, repr=False)
    folder: Path | None = field(default=None, repr=False, compare=False)

    @classmethod
    def shipped(cls, name: str) -> Self:
        """A suite that ships, without its files.

        Raises:
            BenchmarkError: there is none of this name.
        """
        if name not in shipped_suites():
            known = ", ".join(shipped_suites())
            raise BenchmarkError(f"suite: expected one of {known}, found {name!r}")
        return cls.read(_SHIPPED / f"{name}.json", _SHIPPED / f"{name}.sha256")

    @classmethod
    def open(cls, folder: Path, *, is_new: bool = False) -> Self:
        """The suite of a folder, whose files are all checked.

        Args:
            folder: where it is.
            is_new: it may differ from the suite of that name that ships.

        Raises:
            BenchmarkError: a file is missing, is another one or has no hash, or it is not the
                suite of that name that ships.
        """
        found = cls.read(folder / SUITE_FILE, folder / SUMS_FILE, folder)
        if unknown := sorted(_files_in(folder).keys() - found.sums.keys()):
            what = f"expected the hash of every file in {SUMS_FILE}, found none of {unknown[0]!r}"
            raise BenchmarkError(f"suite {found.name}: {what}")
        for name, expected in found.sums.items():
            actual = _sha256(folder / name)
            if actual != expected:
                what = f"expected a file of SHA-256 {expected[:12]}…, found "
                what += f"{actual[:12]}…" if actual else "none"
                raise BenchmarkError(f"suite {found.name}: {name}: {what}; fetch the suite again")
        if not is_new and found.name in shipped_suites():
            check_equal(cls.shipped(found.name), found)
        return found

    @classmethod
    def read(cls, description: Path, sums: Path, folder: Path | None = None) -> Self:
        """Read a description and the hashes.

        Raises:
            BenchmarkError: it is none; its names, which become those of files, can be none of them.
        """
        found = checked(json_of(description), _SHAPE, _VERSION, str(description))
        for key in ("name", *_WORDS):
            if not is_name(found[key]) and (found[key] or key == "name"):
                what = f"{key}: expected {NAME_EXPECTED}, found {brief(found[key])}"
                raise BenchmarkError(f"{description}: {what}")
        packages = found["packages"]
        if not packages or not are_names(packages):
            what = f"packages: expected names, each once, found {brief(packages)}"
            raise BenchmarkError(f"{description}: {what}")
        kind = KINDS.get(found["kind"])
        if kind is None:
            expected = f"expected one of {', '.join(KINDS)}"
            raise BenchmarkError(f"{description}: kind: {expected}, found {brief(found['kind'])}")
        tracks = [[]] if kind.is_recorded else [[PLAIN], [PLAIN, LOCAL]]
        if found["tracks"] not in tracks:
            expected, given = " or ".join(map(str, tracks)), brief(found["tracks"])
            raise BenchmarkError(f"{description}: tracks: expected {expected}, found {given}")
        found |= {key: tuple(found[key]) for key in ("tracks", "packages")}
        known = read_sums(sums) if sums.exists() or folder else {}
        return cls(**found, sums=known, folder=folder)

    @property
    def description(self) -> dict[str, Any]:
        """The content of `SUITE_FILE`."""
        value = asdict(self)
        del value["sums"], value["folder"]
        return {"version": _VERSION, **value}

    @property
    def sha256(self) -> str:
        """The hash of the description and of all files' hashes."""
        text = json.dumps(self.description, sort_keys=True) + sums_text(self.sums)
        return hashlib.sha256(text.encode()).hexdigest()

    @property
    def traits(self) -> Kind:
        """The traits that all suites of its kind have."""
        return KINDS[self.kind]

    @property
    def measures(self) -> tuple[str, ...]:
        """The measures, the one that policies are ranked by before the others."""
        return self.traits.measures

    @property
    def scored_tracks(self) -> tuple[str, ...]:
        """The tracks that numbers are of."""
        return self.tracks or (TIERS,)

    @property
    def columns(self) -> list[tuple[str, str]]:
        """The tracks and measures that are shown; of the local track, the first measure alone."""
        return [
            (track, measure)
            for track in self.scored_tracks
            for measure in (self.measures if track != LOCAL else self.measures[:1])
        ]

    @property
    def place(self) -> Path:
        """The folder.

        Raises:
            BenchmarkError: the files are not here.
        """
        if self.folder is None:
            raise BenchmarkError(
                f"suite {self.name}: expected its files, found none; "
                f"'mlgo-gym bench fetch {self.name} --output DIR' brings them"
            )
        return self.folder

    @property
    def shipped_archive(self) -> Path | None:
        """The archive of a suite whose files ship: recordings, which nobody can make again."""
        path = _SHIPPED / f"{self.name}.tar.xz"
        return path if path.exists() else None

    def modules(self, track: str) -> Packages:
        """The modules of a track."""
        return Packages.of({name: Corpus.load(self.place / track / name) for name in self.packages})

    def recording(self, name: str) -> Path:
        """The file of a recording."""
        return self.place / RECORDINGS / recording_file(name)

    def module_sha256(self, track: str, key: ModuleKey) -> str:
        """The hash of a module's bitcode."""
        return self.sums[f"{track}/{key.package}/{key.name}.bc"]

    def problem_kind(self) -> type[Problem]:
        """The problem that LLVM asks about."""
        return problem_named(self.problem)


def recording_file(name: str) -> str:
    """Return what the file of a recording is called."""
    return f"{name}.npz"


def of_track(name: str, track: str) -> str:
    """Return what a column is called."""
    return f"{name}, local" if track == LOCAL else name


def shipped_suites() -> tuple[str, ...]:
    """The names of the suites that ship."""
    return tuple(sorted(path.stem for path in _SHIPPED.glob("*.json")))


def check_equal(expected: Suite, found: Suite) -> None:
    """See that a suite is the one of its name."""
    if expected.description != found.description:
        keys = [
            key for key, value in expected.description.items() if found.description[key] != value
        ]
        what = f"{keys[0]}: expected {expected.description[keys[0]]!r}"
        raise BenchmarkError(f"suite {found.name}: {what}, found {found.description[keys[0]]!r}")
    other = differing(expected, found)
    check_differing(expected, other, "results on them cannot be compared")


def differing(expected: Suite, found: Suite) -> list[str]:
    """The paths of files whose hashes are not equal; none where no hash is expected."""
    names = sorted({*expected.sums, *found.sums})
    known, given = expected.sums, found.sums
    return [name for name in names if known and known.get(name) != given.get(name)]


def check_differing(
    suite: Suite,
    other: Sequence[str],
    why: str = "another clang makes other bitcode: give the archive",
) -> None:
    """See that no file is another one than the suite names.

    Raises:
        BenchmarkError: the message counts and names the files that differ.
    """
    if other:
        some = ", ".join(other[:_SHOWN]) + (", …" if len(other) > _SHOWN else "")
        raise BenchmarkError(
            f"suite {suite.name}: expected the {len(suite.sums)} files that it names, found "
            f"{len(other)} that differ: {some}; {why}"
        )


def sums_of(folder: Path) -> dict[str, str]:
    """The hashes of all files in a folder but of the two that describe it."""
    return {name: _sha256(path) for name, path in _files_in(folder).items()}


def sums_text(sums: Mapping[str, str]) -> str:
    """Hashes as sha256sum writes them."""
    return "".join(f"{digest}  {name}\n" for name, digest in sorted(sums.items()))


def read_sums(path: Path) -> dict[str, str]:
    """Read what `sums_text` has written."""
    try:
        text = read_bounded(path, _MAX_SUMS_BYTES).decode()
    except (OSError, UnicodeDecodeError) as error:
        raise BenchmarkError(f"{path}: cannot be read: {error}") from error
    found = {}
    for line in text.splitlines():
        digest, _, name = line.partition("  ")
        if len(digest) != _DIGITS or wrong_name(name) is not None or name in found:
            expected = "expected a hash and a path, each once"
            raise BenchmarkError(f"{path}: {expected}, found {brief(line)}")
        found[name] = digest
    return found


def checked(value: Any, shape: dict[str, Shape], version: int, where: str) -> dict[str, Any]:
    """The fields of a JSON object of a version, whose texts are lines that can be shown."""
    if not isinstance(value, dict) or value.get("version") != version:
        found = brief(value.get("version") if isinstance(value, dict) else value)
        raise BenchmarkError(f"{where}: version: expected {version}, found {found}")
    try:
        shaped(value, shape)
    except ValueError as error:
        raise BenchmarkError(f"{where}: {error}") from error
    for key, kind in shape.items():
        if kind is str:
            check_line(value[key], f"{where}: {key}")
    return {key: value[key] for key in shape}


def check_line(text: str, where: str) -> None:
    """See that a text is one line that can be shown."""
    if len(text) > _MAX_TEXT or not text.isprintable():
        expected = f"expected at most {_MAX_TEXT:,} printable characters"
        raise BenchmarkError(f"{where}: {expected}, found {brief(text)}")


def is_name(value: str) -> bool:
    """Whether a name can be part of a file's name: `NAME_EXPECTED`, a letter or digit first.

    >>> is_name("size-v1"), is_name("../size-v1")
    (True, False)
    """
    return _NAME.fullmatch(value) is not None


def are_names(values: Sequence[str]) -> bool:
    """Whether all are names, each of which is there once."""
    return all(map(is_name, values)) and len(set(values)) == len(values)


def json_of(path: Path) -> Any:
    """Read a small file of JSON."""
    try:
        return read_json(path, _MAX_JSON_BYTES)
    except OSError as error:
        raise BenchmarkError(f"{path}: cannot be read: {error.strerror}") from error


def _files_in(folder: Path) -> dict[str, Path]:
    """The files in a folder, by their paths there, without the two that describe it."""
    paths = sorted(each for each in folder.rglob("*") if each.is_symlink() or not each.is_dir())
    names = {path.relative_to(folder).as_posix(): path for path in paths}
    return {name: path for name, path in names.items() if name not in {SUITE_FILE, SUMS_FILE}}


def _sha256(path: Path) -> str:
    """The hash of a file; empty where there is none."""
    try:
        return hashlib.sha256(read_bounded(path, MAX_FILE_BYTES)).hexdigest()
    except FileNotFoundError:
        return ""
    except OSError as error:
        raise BenchmarkError(f"{path}: cannot be read: {error}") from error

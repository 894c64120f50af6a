"""Profiles as LLVM's ``llvm-profdata merge`` writes them, of instrumented IR."""

from __future__ import annotations

import re
import struct
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Self

from corpus_tools.errors import CompileError
from corpus_tools.profdata import ProfileTools
from corpus_tools.scratch import scratch_folder
from mlgo_gym.base import InternalError, ProfileError, read_bounded
from mlgo_gym.corpus import Corpus
from mlgo_gym.llvm import (
    COLD_CUTOFF,
    DEFAULT_TIMEOUT_S,
    HOT_CUTOFF,
    Compiler,
    DescribeRequest,
    FunctionCounts,
    Jobs,
    ModuleCounts,
    each,
    name_in_assembly,
)

_PRINTED: Final[Mapping[str, str]] = MappingProxyType(
    {
        "functions": r"^Total functions: (\d+)$",
        "blocks": r"^Total number of blocks: (\d+)$",
        "total": r"^Total count: (\d+)$",
        "largest_entry": r"^Maximum function count: (\d+)$",
        "largest_inside": r"^Maximum internal block count: (\d+)$",
    }
)
_ROW: Final = re.compile(
    r"^(\d+) blocks .* with count >= (\d+) account for ([\d.]+)% of the total counts", re.MULTILINE
)
_IN_BITCODE: Final[Mapping[str, str]] = MappingProxyType(
    {
        "functions": "NumFunctions",
        "blocks": "NumCounts",
        "total": "TotalCount",
        "largest_entry": "MaxFunctionCount",
        "largest_inside": "MaxInternalCount",
    }
)
_MILLION: Final = 10_000

TOLERANCE: Final = 0.001
"""The share of counts that may be lost where a program ends or jumps inside of its functions."""

LARGEST_BYTES: Final = 1 << 28

_INDEXED: Final = b"\xfflprofi\x81"
_RAW: Final = (b"\xfflprofr\x81", b"\x81rforpl\xff")
_HEADER: Final = struct.Struct("<QQ")
_OF_IR, _OF_CONTEXTS = 1 << 56, 1 << 57
_EXPECTED: Final = "expected a profile of instrumented IR as 'llvm-profdata merge' writes it"
_FUNCTION: Final = re.compile(
    r"^  (?P<name>.+):\n    Hash: (?P<hash>0x[0-9a-f]+)\n    Counters: \d+\n"
    r"    Block counts: \[(?P<counts>[\d, ]*)\]",
    re.MULTILINE,
)


@dataclass(frozen=True, slots=True)
class Cutoff:
    """The blocks that take a share of all counts.

    Attributes:
        millionths: the share.
        least_count: how often each of them runs at least.
        blocks: how many they are.
    """

    millionths: int
    least_count: int
    blocks: int


@dataclass(frozen=True, slots=True)
class Summary:
    """LLVM's summary of a profile (``ProfileSummary``).

    Attributes:
        functions: how many it has.
        blocks: how many counters they have.
        total: the sum of all counts.
        largest_entry: how often the function that is entered most is entered.
        largest_inside: the largest other count.
        cutoffs: by their share of all counts, in millionths.

    >>> Summary(1, 1, 5, 5, 0, (Cutoff(990_000, 5, 1), Cutoff(999_999, 5, 1))).hot_threshold
    5
    """

    functions: int
    blocks: int
    total: int
    largest_entry: int
    largest_inside: int
    cutoffs: tuple[Cutoff, ...]

    @property
    def hot_threshold(self) -> int | None:
        """The least count that is hot."""
        return self._least(HOT_CUTOFF)

    @property
    def cold_threshold(self) -> int | None:
        """The greatest count that is cold."""
        return self._least(COLD_CUTOFF)

    @classmethod
    def printed(cls, text: str) -> Self:
        """Read what ``llvm-profdata show --detailed-summary`` prints."""
        found = {key: re.search(each, text, re.MULTILINE) for key, each in _PRINTED.items()}
        if missing := [key for key, match in found.items() if match is None]:
            raise InternalError(f"llvm-profdata: expected {missing[0]}, found {text!r}")
        cutoffs = (
            Cutoff(round(float(share) * _MILLION), int(count), int(blocks))
            for blocks, count, share in _ROW.findall(text)
        )
        return cls(
            **{key: int(match[1]) for key, match in found.items() if match}, cutoffs=tuple(cutoffs)
        )

    @classmethod
    def in_bitcode(cls, numbers: Mapping[str, Any]) -> Self:
        """Make the summary of a module's metadata (`mlgo_gym.llvm.text._profile.summary_of`)."""
        cutoffs = (Cutoff(*row) for row in numbers.get("DetailedSummary", ()))
        return cls(
            **{key: numbers[name] for key, name in _IN_BITCODE.items()}, cutoffs=tuple(cutoffs)
        )

    def record(self) -> dict[str, Any]:
        """The summary as JSON values."""
        thresholds = {"hot_threshold": self.hot_threshold, "cold_threshold": self.cold_threshold}
        return asdict(self) | thresholds

    def _least(self, millionths: int) -> int | None:
        rows = sorted((each.millionths, each.least_count) for each in self.cutoffs)
        return next((count for share, count in rows if share >= millionths), None)


@dataclass(frozen=True, slots=True)
class Inconsistency:
    """Counts that do not add up.

    Attributes:
        module: where.
        function: whose.
        expected: what the one says: what comes into its blocks, or how often it is called.
        found: what the other says: what leaves them, or how often it is entered.
        what: which of both, in words.

    >>> print(Inconsistency("a.c", "bar", 1000, 900, "calls"))
    module 'a.c': function 'bar': expected to be entered as often as it is called, 1,000 times, \
found 900
    """

    module: str
    function: str
    expected: int
    found: int
    what: str

    def record(self) -> dict[str, Any]:
        """The fields by name, as JSON values."""
        return asdict(self)

    def __str__(self) -> str:
        where = f"module {self.module!r}: function {self.function!r}"
        expected = "to leave its blocks as often as it enters them"
        if self.what == "calls":
            expected = "to be entered as often as it is called"
        return f"{where}: expected {expected}, {self.expected:,} times, found {self.found:,}"


@dataclass(frozen=True, slots=True)
class CorpusCounts:
    """The counts of a corpus.

    Attributes:
        summary: of the profile.
        modules: what each module has.

    >>> CorpusCounts(Summary(0, 0, 0, 0, 0, ()), {}).inconsistencies()
    []
    """

    summary: Summary
    modules: Mapping[str, ModuleCounts]

    def inconsistencies(self, tolerance: float = TOLERANCE) -> list[Inconsistency]:
        """List the counts that do not add up by more than a share, the largest first.

        Of a function that other code may call it is known only that it is entered as often as it
        is called here, or more often.
        """
        found = [
            each
            for name, module in self.modules.items()
            for each in _inconsistencies(name, module, self._calls())
            if abs(each.expected - each.found) > max(1, tolerance * each.expected)
        ]
        return sorted(found, key=lambda each: -abs(each.expected - each.found))

    def _calls(self) -> Counter[str]:
        calls: Counter[str] = Counter()
        for module in self.modules.values():
            calls.update(module.calls)
        return calls


def counts_of_corpus(
    corpus: Corpus,
    *,
    jobs: Jobs = 1,
    timeout_s: float = DEFAULT_TIMEOUT_S,
    progress: Callable[[], None] = lambda: None,
) -> CorpusCounts:
    """The counts that a corpus has in its bitcode.

    Args:
        corpus: which.
        jobs: how many modules are looked at at once.
        timeout_s: how long LLVM may take for one, in seconds.
        progress: called when a module is done.

    Raises:
        ModuleError: LLVM refuses a module.
        ProfileError: it has no counts.

    >>> from mlgo_gym import SAMPLE_CORPUS
    >>> counts_of_corpus(Corpus.load(SAMPLE_CORPUS).only(["digest.c"]))
    Traceback (most recent call last):
    mlgo_gym.errors.ProfileError: profile '...': expected counts in the bitcode of the corpus, \
found none; 'mlgo-gym profile attach' puts them there
    """

    def describe(compiler: Compiler, name: str) -> dict[str, Any]:
        module = corpus[name]
        return compiler.inquire(module, DescribeRequest(module.is_text, counts=True))[0]

    compiler = partial(Compiler, timeout_s=timeout_s)
    modules, summary = {}, None
    with closing(each(corpus.names, describe, compiler, jobs=jobs, in_order=True)) as running:
        for done in running:
            modules[done.item] = ModuleCounts.of_json(done.value["counts"])
            if summary is None and "TotalCount" in done.value["summary"]:
                summary = Summary.in_bitcode(done.value["summary"])
            progress()
    if summary is None:
        raise ProfileError(
            str(corpus.folder),
            "expected counts in the bitcode of the corpus, found none; 'mlgo-gym profile attach' "
            "puts them there",
        )
    return CorpusCounts(summary, modules)


def _inconsistencies(
    name: str, module: ModuleCounts, calls_of_all: Mapping[str, int]
) -> list[Inconsistency]:
    found = []
    for written, counts in module.functions.items():
        function = name_in_assembly(written)
        if counts.lost:
            left = counts.flow - counts.lost
            found.append(Inconsistency(name, function, counts.flow, left, "blocks"))
        calls, is_known = _calls(written, counts, module, calls_of_all)
        if calls > counts.entry or (is_known and calls < counts.entry):
            found.append(Inconsistency(name, function, calls, counts.entry, "calls"))
    return found


def _calls(
    name: str, counts: FunctionCounts, module: ModuleCounts, calls_of_all: Mapping[str, int]
) -> tuple[int, bool]:
    """How often a function is called, as far as is known, and whether that is all of it."""
    if name in module.own:
        return module.calls.get(name, counts.entry), name in module.known_callers
    return calls_of_all.get(name, 0), False


@dataclass(frozen=True, slots=True)
class ProfileFile:
    """An indexed profile of instrumented IR, whose header has been read.

    Attributes:
        name: what it is called in errors.
        data: its bytes.

    Raises:
        ProfileError: it is something else.

    >>> ProfileFile("a.profdata", b"")
    Traceback (most recent call last):
    mlgo_gym.errors.ProfileError: profile 'a.profdata': expected a profile of instrumented IR as \
'llvm-profdata merge' writes it, found an empty file
    """

    name: str
    data: bytes = field(repr=False)

    def __post_init__(self) -> None:
        if found := _problem_of(self.data):
            raise ProfileError(self.name, f"{_EXPECTED}, found {found}")

    @classmethod
    def read(cls, path: Path | str) -> Self:
        """Read one.

        Raises:
            ProfileError: it cannot be read, is too large, or something else.
        """
        try:
            return cls(str(path), read_bounded(Path(path), LARGEST_BYTES))
        except OSError as error:
            raise ProfileError(str(path), f"cannot be read: {error.strerror}") from error

    @contextmanager
    def at_hand(self) -> Iterator[Path]:
        """A file of these bytes, for LLVM's tools."""
        with scratch_folder() as folder:
            path = folder / "profile.profdata"
            path.write_bytes(self.data)
            yield path


def _problem_of(data: bytes) -> str | None:
    if not data:
        return "an empty file"
    if data.startswith(_RAW):
        return "a raw one, which is to be merged first"
    if not data.startswith(_INDEXED):
        return "something else"
    if len(data) < _HEADER.size:
        return f"{len(data)} bytes"
    version = _HEADER.unpack_from(data)[1]
    if version & _OF_CONTEXTS:
        return "one of contexts, after inlining"
    return None if version & _OF_IR else "one of clang's front end"


def summary_of_profile(profile: ProfileFile) -> Summary:
    """LLVM's summary of a profile.

    Raises:
        ProfileError: LLVM cannot read it.
        ToolchainError: llvm-profdata is missing.

    >>> from mlgo_gym import SAMPLE_CORPUS, Corpus
    >>> from mlgo_gym.lab.programs import collect_profile
    >>> summary_of_profile(collect_profile(Corpus.load(SAMPLE_CORPUS)).profile).functions
    45
    """
    return Summary.printed(_shown(profile, "--detailed-summary"))


def counters_of(profile: ProfileFile) -> dict[tuple[str, str], tuple[int, ...]]:
    """The counters of a profile's functions.

    Raises:
        ProfileError: LLVM cannot read it.
        ToolchainError: llvm-profdata is missing.

    >>> from mlgo_gym import SAMPLE_CORPUS, Corpus
    >>> from mlgo_gym.lab.programs import collect_profile
    >>> found = counters_of(collect_profile(Corpus.load(SAMPLE_CORPUS)).profile)
    >>> [counts for (name, _), counts in found.items() if name == "json_parse"]
    [(80, 80, 0, 80, 0)]
    """
    text = _shown(profile, "--all-functions", "--counts")
    return {
        (match["name"], match["hash"]): tuple(map(int, match["counts"].split(", ")))
        for match in _FUNCTION.finditer(text)
    }


def _shown(profile: ProfileFile, *options: str) -> str:
    tools = ProfileTools.find()
    with profile.at_hand() as path:
        try:
            return tools.show(path, *options)
        except CompileError as error:
            raise _unreadable(profile, error) from error


def _unreadable(profile: ProfileFile, error: CompileError) -> ProfileError:
    said = error.stderr_tail.rpartition(": ")[2].strip() or str(error)
    return ProfileError(profile.name, f"expected one that LLVM reads, found it {said!r}")

"""The counts that a corpus has in its bitcode, and whether they add up."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, Final

from mlgo_gym.base import ProfileError
from mlgo_gym.corpus import Corpus
from mlgo_gym.lab.programs._profile_summary import Summary
from mlgo_gym.llvm import (
    DEFAULT_TIMEOUT_S,
    Compiler,
    DescribeRequest,
    FunctionCounts,
    Jobs,
    ModuleCounts,
    each,
    name_in_assembly,
)

TOLERANCE: Final = 0.001
"""The share of counts that may be lost where a program ends or jumps inside of its functions."""


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
        if self.what == "calls":
            return (
                f"{where}: expected to be entered as often as it is called, {self.expected:,} "
                f"times, found {self.found:,}"
            )
        return (
            f"{where}: expected to leave its blocks as often as it enters them, {self.expected:,} "
            f"times, found {self.found:,}"
        )


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

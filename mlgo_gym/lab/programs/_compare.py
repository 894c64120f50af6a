"""How much two profiles differ, such as those of two training runs."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

from corpus_tools.errors import CompileError
from corpus_tools.profdata import ProfileTools
from mlgo_gym.base import ProfileError
from mlgo_gym.lab.programs._file import ProfileFile
from mlgo_gym.lab.programs._summary import Summary

_FUNCTION: Final = re.compile(
    r"^  (?P<name>.+):\n    Hash: (?P<hash>0x[0-9a-f]+)\n    Counters: \d+\n"
    r"    Block counts: \[(?P<counts>[\d, ]*)\]",
    re.MULTILINE,
)

Counters = Mapping[tuple[str, str], tuple[int, ...]]
"""The counters of functions, by name and the hash of the control flow."""


@dataclass(frozen=True, slots=True)
class CountsChange:
    """A function whose share of all counts is not the same.

    Attributes:
        function: its name.
        share_a: its counters' share of all counts in the one profile.
        share_b: in the other.
        distance: what the two profiles differ by in its counters alone.
    """

    function: str
    share_a: float
    share_b: float
    distance: float


@dataclass(frozen=True, slots=True)
class ProfileComparison:
    """How much two profiles differ.

    Attributes:
        distance: the share of all counts that is elsewhere, from 0, the same up to a factor, to 1,
            nothing in common: 1 less what ``llvm-profdata overlap`` calls the overlap of edges.
        factor: how many times the counts of the one the other has.
        only_a: functions that the one alone has counts of.
        only_b: functions that the other alone has counts of.
        rebuilt: functions that both have, with another control flow.
        functions: what differs, the largest distance first.

    >>> ProfileComparison(0.0, 1.0, (), (), (), ()).distance
    0.0
    """

    distance: float
    factor: float
    only_a: tuple[str, ...]
    only_b: tuple[str, ...]
    rebuilt: tuple[str, ...]
    functions: tuple[CountsChange, ...]

    def record(self) -> dict[str, Any]:
        """The comparison as JSON values."""
        return asdict(self)


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


def compare_profiles(a: ProfileFile, b: ProfileFile) -> ProfileComparison:
    """Compare two profiles, as shares of their counts.

    Raises:
        ProfileError: LLVM cannot read one, or it has no counts.
        ToolchainError: llvm-profdata is missing.

    >>> from mlgo_gym import SAMPLE_CORPUS, Corpus
    >>> from mlgo_gym.lab.programs import collect_profile
    >>> profile = collect_profile(Corpus.load(SAMPLE_CORPUS)).profile
    >>> compare_profiles(profile, profile).distance
    0.0
    """
    (one, total), (other, other_total) = _counted(a), _counted(b)
    both = one.keys() & other.keys()
    names = [{name for name, _ in each.keys() - both} for each in (one, other)]
    changes = [
        _change(name, one.get((name, flow), ()), total, other.get((name, flow), ()), other_total)
        for name, flow in {**one, **other}
    ]
    changed = sorted((each for each in changes if each.distance), key=lambda each: -each.distance)
    return ProfileComparison(
        distance=math.fsum(each.distance for each in changed),
        factor=other_total / total,
        only_a=tuple(sorted(names[0] - names[1])),
        only_b=tuple(sorted(names[1] - names[0])),
        rebuilt=tuple(sorted(names[0] & names[1])),
        functions=tuple(changed),
    )


def _change(
    name: str, one: tuple[int, ...], total: int, other: tuple[int, ...], other_total: int
) -> CountsChange:
    length = max(len(one), len(other))
    pairs = zip(one + (0,) * (length - len(one)), other + (0,) * (length - len(other)), strict=True)
    # In whole numbers, so that profiles of the same shares differ by nothing.
    apart = sum(abs(x * other_total - y * total) for x, y in pairs)
    return CountsChange(
        name, sum(one) / total, sum(other) / other_total, apart / (2 * total * other_total)
    )


def _counted(profile: ProfileFile) -> tuple[Counters, int]:
    counters = counters_of(profile)
    total = sum(map(sum, counters.values()))
    if not total:
        raise ProfileError(profile.name, f"expected counts, found {len(counters)} functions with 0")
    return counters, total


def _shown(profile: ProfileFile, *options: str) -> str:
    tools = ProfileTools.find()
    with profile.at_hand() as path:
        try:
            return tools.show(path, *options)
        except CompileError as error:
            raise unreadable(profile, error) from error


def unreadable(profile: ProfileFile, error: CompileError) -> ProfileError:
    """Return the error for a profile that LLVM's tools refuse."""
    said = error.stderr_tail.rpartition(": ")[2].strip() or str(error)
    return ProfileError(profile.name, f"expected one that LLVM reads, found it {said!r}")

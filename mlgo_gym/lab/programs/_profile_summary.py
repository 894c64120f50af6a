"""LLVM's summary of a profile, which decides what is hot and what is cold."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from types import MappingProxyType
from typing import Any, Final, Self

from mlgo_gym.base import InternalError
from mlgo_gym.llvm import COLD_CUTOFF, HOT_CUTOFF

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

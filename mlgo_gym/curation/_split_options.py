"""Options that decide how corpora are split."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from mlgo_gym.base import OptionsError

UNITS: Final = ("package", "module")
"""The unit that a split keeps on one side."""


@dataclass(frozen=True, slots=True)
class SplitOptions:
    """How corpora are split: what is kept together is one of `UNITS`.

    The test side aims at a fraction of the bitcode's bytes; near-duplicates share this much of the
    smaller module's instructions, above 0 and at most 1.
    """

    test_fraction: float = 0.2
    seed: int = 0
    by: str = "package"
    similarity: float = 0.4
    honour_recorded: bool = True

    def __post_init__(self) -> None:
        if not 0 < self.test_fraction < 1:
            raise OptionsError(
                f"test_fraction: expected a number above 0 and below 1, found {self.test_fraction}"
            )
        if not 0 < self.similarity <= 1:
            raise OptionsError(
                f"similarity: expected a number above 0 and at most 1, found {self.similarity}"
            )
        if self.by not in UNITS:
            raise OptionsError(f"by: expected one of {', '.join(UNITS)}, found {self.by!r}")

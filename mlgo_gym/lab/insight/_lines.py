"""Decisions by the lines of the source that their calls stand in."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from mlgo_gym.lab.insight._placed_decisions import PlacedDecisions


@dataclass(frozen=True, slots=True)
class LineDecisions:
    """The decisions of two policies about the calls of one function in one line.

    Attributes:
        callee: the symbol of the function that is called.
        asked: how often both were asked about it, wherever the line's code has come to.
        inlined: how often both answered to inline it.
        own_bytes: the code that came of it, without that of calls inside it.
    """

    callee: str
    asked: tuple[int, int]
    inlined: tuple[int, int]
    own_bytes: tuple[int, int]

    @property
    def difference_bytes(self) -> int:
        """How much more code came of it under the second policy."""
        before, after = self.own_bytes
        return after - before


class DecidedLines:
    """Adds up the decisions of modules by file and line; those without lines are left out."""

    def __init__(self) -> None:
        self._counts: defaultdict[tuple[str, int, str], Counter[tuple[str, int]]] = defaultdict(
            Counter
        )

    def add(self, before: PlacedDecisions, after: PlacedDecisions) -> None:
        """Take in a module under both policies."""
        for which, placed in enumerate((before, after)):
            for decision in placed.decisions:
                call = decision.site.calls[0] if decision.site.calls else None
                if call and call.line:
                    counts = self._counts[call.file, call.line, decision.site.callee]
                    counts["asked", which] += 1
                    counts["inlined", which] += int(decision.answer > 0)
                    counts["bytes", which] += decision.own_bytes

    def files(self) -> Mapping[str, Mapping[int, list[LineDecisions]]]:
        """The decisions in each line of each file, in order."""
        found: defaultdict[str, dict[int, list[LineDecisions]]] = defaultdict(dict)
        for (file, line, callee), counts in sorted(self._counts.items()):
            numbers = ((counts[name, 0], counts[name, 1]) for name in ("asked", "inlined", "bytes"))
            found[file].setdefault(line, []).append(LineDecisions(callee, *numbers))
        return found

"""LLVM's own training score of a register allocation, from the machine code that it leaves.

``llvm/lib/CodeGen/RegAllocScore.cpp`` adds up the instructions that are left after register
allocation, each with the frequency of its block relative to the entry's and a weight: copies 0.2,
loads 4, stores 1, both at once 5, and of those that are computed again rather than kept, cheap ones
0.2 and others 1. It is not compiled into llvmlite's LLVM, so the same sum is made here. Whether an
instruction loads or stores is read off its memory operands. Those of inline assembly and of
instructions that have none, such as fences, are not counted; no allocation changes them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from mlgo_gym.base import InternalError
from mlgo_gym.llvm.text._machine_code import KINDS, MachineFunction

WEIGHTS: Final[Mapping[str, float]] = MappingProxyType(
    dict(zip(KINDS, (0.2, 4.0, 1.0, 5.0, 0.2, 1.0), strict=True))
)
"""LLVM's weight of each kind of instruction (``-regalloc-copy-weight`` and so on)."""

Frequencies = Mapping[int, float]
"""The frequency of each block of a function, by number, relative to the entry's."""


@dataclass(frozen=True, slots=True)
class AllocationScore:
    """The cost of an allocation: instructions by kind, weighted by frequency."""

    counts: Mapping[str, float]

    @property
    def value(self) -> float:
        """LLVM's score: the counts, weighted by `WEIGHTS` and added up."""
        return sum(weight * self.counts.get(kind, 0.0) for kind, weight in WEIGHTS.items())

    @classmethod
    def total(cls, scores: Iterable[AllocationScore]) -> AllocationScore:
        """The sum of several, such as a module's functions."""
        counts = dict.fromkeys(KINDS, 0.0)
        for score in scores:
            for kind, count in score.counts.items():
                counts[kind] += count
        return cls(counts)


def score_function(function: MachineFunction, frequencies: Frequencies) -> AllocationScore:
    """Score a function."""
    counts = dict.fromkeys(KINDS, 0.0)
    for block in function.blocks:
        if block.number not in frequencies:
            raise InternalError(f"function {function.name!r}: no frequency of bb.{block.number}")
        for kind, count in block.counts.items():
            counts[kind] += count * frequencies[block.number]
    return AllocationScore(counts)


def complete_frequencies(function: MachineFunction, printed: Frequencies) -> dict[int, float]:
    """The frequencies of all blocks of a function.

    Blocks that were put into edges after LLVM printed the frequencies have those of their edges
    (``MachineBlockFrequencyInfo::onEdgeSplit``). Register allocation changes no block, so they hold
    for every allocation of the function.
    """
    frequencies = {block.number: printed.get(block.number) for block in function.blocks}
    edges: dict[int, list[tuple[int, float]]] = {}
    for block in function.blocks:
        for successor, probability in block.successors:
            edges.setdefault(successor, []).append((block.number, probability))
    known = {number: value for number, value in frequencies.items() if value is not None}
    for block in function.blocks:
        _complete(block.number, edges, known)
    return known


def _complete(
    number: int, edges: Mapping[int, list[tuple[int, float]]], known: dict[int, float]
) -> float:
    if number not in known:
        known[number] = 0.0  # while what comes before it is looked at
        known[number] = sum(
            _complete(before, edges, known) * probability
            for before, probability in edges.get(number, ())
        )
    return known[number]

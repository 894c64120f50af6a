"""How many instructions are executed, by the counts that a module carries.

LLVM's assembly with comments says where blocks start, and what it prints of block frequencies
(``-print-machine-bfi``) how often each runs, as far as its passes have kept the counts right that
were in the bitcode: a function's entry count, times a block's frequency relative to the entry's.
Both are of the code as it is emitted, in blocks of the same numbers::

            .globl  f                               # -- Begin function f
    f:                                      # @f
    # %bb.0:
            xorl    %eax, %eax
    .LBB0_1:                                # =>This Inner Loop Header: Depth=1
            addl    $-1, %edi
            jne     .LBB0_1
            retq                            ...
                                            # -- End function

Directives, labels and comments are no instructions. A block that LLVM has put in since it printed
its frequencies counts as the one before it.

Two things are put right. Where weights got lost on the way, frequencies of loops in loops may come
out a hundred times too large: no block is taken to run more often than any did in the profile. And
a function that other modules have, too (``.weak``: C++'s inline functions), has the counts of all
that call it, wherever they are, until no call is left here and it goes: it is taken to be entered
as often as it is called here.
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from mlgo_gym.llvm.text._machine_code import block_counts

_LINE: Final = re.compile(
    r"^(?P<linkage>.*)(?:\#|//|@)\ --\ Begin\ function\ (?P<function>.*)$"
    r"|^(?:\.?L[^\s:]*BB\d+_|(?:\#|//|@)\ %bb\.)(?P<block>\d+):"
    r"|^\t(?P<instruction>[a-z{].*)$",
    re.MULTILINE | re.VERBOSE,
)
_CALL: Final = re.compile(r'(?:call\w*|j\w+|bl?)\t"?([^\s@"*,]+)')
_WEAK: Final = "\t.weak\t"
_MOST_ROUNDS: Final = 100


@dataclass(frozen=True, slots=True)
class _Function:
    name: str
    is_weak: bool
    sizes: Counter[int] = field(default_factory=Counter)
    calls: dict[int, list[str]] = field(default_factory=lambda: defaultdict(list))


def executed_instructions(assembly: str, printed: str, most: int) -> float | None:
    """The instructions of each block times how often it runs, over all functions with counts.

    Args:
        assembly: of a module, with LLVM's comments.
        printed: LLVM's tables of block frequencies.
        most: the largest count of the profile; 0 where that is not known.

    Returns:
        ``None`` where no function has a count.
    """
    counts = block_counts(printed)
    if not counts:
        return None
    functions = [each for each in _functions(assembly) if each.name in counts]
    runs = {each.name: _runs(each, counts[each.name], most or math.inf) for each in functions}
    shares = _shares(
        functions, runs, {name: next(iter(each.values())) for name, each in counts.items()}
    )
    return sum(
        shares[each.name] * size * runs[each.name][block]
        for each in functions
        for block, size in each.sizes.items()
    )


def _runs(function: _Function, known: Mapping[int, float], most: float) -> dict[int, float]:
    """How often each block of a function runs."""
    found, before = {}, 0.0
    for block in function.sizes:
        found[block] = before = min(most, known.get(block, before))
    return found


def _shares(
    functions: Sequence[_Function],
    runs: Mapping[str, Mapping[int, float]],
    entries: Mapping[str, float],
) -> dict[str, float]:
    """Return the share of a function's counts that calls in this module have."""
    shares = {each.name: 0.0 if each.is_weak else 1.0 for each in functions}
    weak = {each.name for each in functions if each.is_weak}
    for _ in range(_MOST_ROUNDS):  # callers of callers, until nothing changes
        called = dict.fromkeys(weak, 0.0)
        for each in functions:
            for block, names in each.calls.items():
                for name in names:
                    if name in called:
                        called[name] += shares[each.name] * runs[each.name][block]
        found = {name: min(1.0, n / entries[name]) for name, n in called.items() if entries[name]}
        if all(shares[name] == share for name, share in found.items()):
            break
        shares |= found
    return shares


def _functions(assembly: str) -> Iterator[_Function]:
    """Each function's blocks, in the order of the code: instructions, and whom they call."""
    function, block = _Function("", is_weak=False), 0
    for match in _LINE.finditer(assembly):
        if instruction := match["instruction"]:
            function.sizes[block] += 1
            if call := _CALL.match(instruction):
                function.calls[block].append(call[1])
        elif match["block"]:
            block = int(match["block"])
            function.sizes[block] += 0
        else:
            yield function
            function = _Function(match["function"], match["linkage"].startswith(_WEAK))
            block = 0
    yield function

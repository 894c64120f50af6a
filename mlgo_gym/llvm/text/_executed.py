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
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import Final

from mlgo_gym.llvm.text._machine_code import block_counts

_LINE: Final = re.compile(
    r"^.*(?:\#|//|@)\ --\ Begin\ function\ (?P<function>.*)$"
    r"|^(?:\.?L[^\s:]*BB\d+_|(?:\#|//|@)\ %bb\.)(?P<block>\d+):"
    r"|^\t(?P<instruction>[a-z{])",
    re.MULTILINE | re.VERBOSE,
)


def executed_instructions(assembly: str, printed: str) -> float | None:
    """The instructions of each block times how often it runs, over all functions with counts.

    Args:
        assembly: of a module, with LLVM's comments.
        printed: LLVM's tables of block frequencies.

    Returns:
        ``None`` where no function has a count.
    """
    counts = block_counts(printed)
    if not counts:
        return None
    total = 0.0
    for function, sizes in _block_sizes(assembly):
        known, runs = counts.get(function, {}), 0.0
        for block, size in sizes.items():
            runs = known.get(block, runs)
            total += size * runs
    return total


def _block_sizes(assembly: str) -> Iterator[tuple[str, Counter[int]]]:
    """The instructions in each block of each function, in the order of the code."""
    name, sizes, block = "", Counter[int](), 0
    for match in _LINE.finditer(assembly):
        if match["instruction"]:
            sizes[block] += 1
        elif match["block"]:
            block = int(match["block"])
            sizes[block] += 0
        else:
            if sizes:
                yield name, sizes
            name, sizes, block = match["function"], Counter(), 0
    yield name, sizes

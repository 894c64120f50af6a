"""How often each instruction of a program is executed, by functions (valgrind's callgrind)."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import Final

import numpy as np
from numpy.typing import NDArray

from corpus_tools.workloads import Workload
from mlgo_gym.corpus import function_symbols, read_elf
from mlgo_gym.lab.programs._meters import COUNTS_LOGGED, way_of
from mlgo_gym.lab.programs._program import Program
from mlgo_gym.lab.programs._running import run_program

_OPTIONS: Final = (
    *("--dump-instr=yes", "--dump-line=no", "--compress-pos=no", "--compress-strings=no"),
)
_COST: Final = re.compile(rb"^(0x[0-9a-f]+) (\d+)$", re.MULTILINE)
_CALL: Final = re.compile(rb"^calls=.*\n.*$", re.MULTILINE)


class ExecutedFunction:
    """How often the instructions of a function are executed.

    Args:
        size_bytes: the size of its code.
        counts: how often, by the bytes from the function's start to the instruction.

    >>> ExecutedFunction(8, {0: 2, 4: 10}).within(0, 4)
    2
    """

    def __init__(self, size_bytes: int, counts: Mapping[int, int]) -> None:
        self.size_bytes: Final = size_bytes
        self._at: NDArray[np.int64] = np.array(sorted(counts), np.int64)
        numbers = [counts[each] for each in self._at.tolist()]
        self._sums: NDArray[np.int64] = np.cumsum([0, *numbers], dtype=np.int64)

    def within(self, start: int, end: int) -> int:
        """The executed instructions from a byte of the function to the one before another."""
        first, last = np.searchsorted(self._at, [start, end])
        return int(self._sums[last] - self._sums[first])


def executed_code(workload: Workload, program: Program) -> dict[str, ExecutedFunction]:
    """The functions of a program that have a name of their own, and how often all is executed.

    Several functions of one name, as static ones of several modules, cannot be told apart and are
    left out.

    Raises:
        WorkloadError: it did something else than it must.
        EnvironmentSetupError: valgrind is missing.
    """
    way = way_of(_OPTIONS, name="callgrind", counts=COUNTS_LOGGED, log="2")
    log = run_program(workload, program.path, way).log
    counts = Counter[int]()
    for address, count in _COST.findall(_CALL.sub(b"", log)):
        counts[int(address, 16)] += int(count)
    elf = read_elf(program.path.read_bytes())
    places: defaultdict[str, set[tuple[int, int]]] = defaultdict(set)
    for symbol in function_symbols(elf) if elf else ():
        places[str(symbol.name)].add((int(symbol.value), int(symbol.size)))
    found = {}
    for name, known in places.items():
        if len(known) == 1:
            ((start, size),) = known
            inside = range(start, start + size)
            found[name] = ExecutedFunction(
                size, {at - start: counts[at] for at in inside if at in counts}
            )
    return found

"""A recording that is small enough to work out by hand, and corpora of programs."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from mlgo_gym.lab.tiers._recording import Recording
from tests.lab.programs.conftest import corpus  # noqa: F401 - a fixture


def small(**changes: Any) -> Recording:
    """``main`` calls ``f`` four times, and has a loop; one instruction takes a second.

    ``f`` executes 10 instructions a call at O0, and 4, 2 and 1 above; ``main`` 7 at any tier.
    The last call of ``f`` has another value than the others: specialised on one value it executes 1
    instruction a call, and 13 where it does not know the value; on two, 3. Entering ``main``'s loop
    at its second jump back saves 4 instructions.
    """
    events = [
        (0, 0, 0, 1),
        (1, 0, 0, 2),  # f's first call
        (0, 1, 0, 2),  # a jump back of main
        (1, 0, 1, 3),  # f's second
        (0, 1, 1, 3),
        (1, 0, 2, 5),  # f's fourth
        (1, 2, 0, 5),  # which has another value
    ]
    counts = [
        (0, 0, 7, 7, 7, 7, 7, 7, 7, 7),
        (1, 1, 10, 4, 2, 1, 1, 3, 3, 2),
        (3, 1, 20, 8, 4, 2, 2, 6, 6, 4),
        (5, 1, 10, 4, 2, 1, 13, 3, 3, 2),
    ]
    spent = [(0, 0, 1), (1, 1, 10), (2, 0, 1), (3, 1, 10), (4, 0, 2), (4, 1, 10), (5, 1, 10)]
    spent.append((5, 0, 3))
    compile_s = [[1.0, 1.0], [50.0, 5.0], [60.0, 12.0], [70.0, 30.0]]
    values: dict[str, Any] = {
        "program": "a/b",
        "rounds": 1,
        "stdout_sha256": "0" * 64,
        "llvm": "22.1.0",
        "program_sha256": "0" * 64,
        "functions": ("main", "f"),
        "sizes": np.array([20, 10]),
        "events": np.array(events),
        "counts": np.array(counts),
        "spent": np.array(spent),
        "entries": np.array([(4, -4)]),
        "values": np.array([(1, 0, 2, 5, 6, 0, 0)]),
        "kept": np.zeros((0, 2), int),
        "compile_s": np.array([*compile_s, *([0.0, cost] for cost in (6.0, 7.0, 7.0, 0.0))]),
        "entry_s": np.array([0.5]),
        "seconds_per_instruction": 0.5,
        "library_s": 0.0,
    }
    return Recording(**values | changes)


def profiled() -> Recording:
    """``main`` calls ``f`` 200 times; it can be pruned, and reaches other blocks in call 140 on.

    It executes 10 instructions a call at O0, 2 above, 1 where it is pruned, and 15 once that was
    wrong. Specialised on its one value it executes 2.
    """
    calls = [(1, 0, power, (1 << power) + 1) for power in range(8)]
    events = [(0, 0, 0, 1), *calls, (1, 5, 0, 140), (1, 5, 1, 150)]
    starts = [(1 << power) + 1 for power in range(8)] + [141, 151, 202]
    counts = [(0, 0, *[7] * 8)]
    for place, (start, end) in enumerate(itertools.pairwise(starts), 1):
        many = end - start
        pruned = many if start < 129 else 15 * many
        counts.append((place, 1, 10 * many, *[2 * many] * 6, pruned))
    return small(
        program="a/profiled",
        events=np.array(events),
        counts=np.array(counts),
        spent=np.array([(row[0], row[1], row[2]) for row in counts]),
        entries=np.zeros((0, 2), int),
        entry_s=np.zeros(0),
        values=np.array([(1, 0, 1, 5, 0, 0, 0)]),
        kept=np.array([(1, 0), (1, 2)]),
        compile_s=np.array([[1.0, 1.0], *([50.0, each] for each in (5, 12, 30, 9, 9, 9, 4))]),
    )

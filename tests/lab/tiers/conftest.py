"""A recording that is small enough to work out by hand, and corpora of programs."""

from __future__ import annotations

from typing import Any

import numpy as np

from mlgo_gym.lab.tiers._recording import Recording
from tests.lab.programs.conftest import corpus  # noqa: F401 - a fixture


def small(**changes: Any) -> Recording:
    """``main`` calls ``f`` four times, and has a loop; one instruction takes a second.

    ``f`` executes 10 instructions a call at O0, and 4, 2 and 1 above; ``main`` 7 at any tier.
    """
    events = [
        (0, 0, 0, 1),
        (1, 0, 0, 2),  # f's first call
        (0, 1, 0, 2),  # a jump back of main
        (1, 0, 1, 3),  # f's second
        (0, 1, 1, 3),
        (1, 0, 2, 5),  # f's fourth
    ]
    counts = [
        (0, 0, 7, 7, 7, 7),
        (1, 1, 10, 4, 2, 1),
        (3, 1, 20, 8, 4, 2),
        (5, 1, 10, 4, 2, 1),
    ]
    spent = [(0, 0, 1), (1, 1, 10), (2, 0, 1), (3, 1, 10), (4, 0, 2), (4, 1, 10), (5, 1, 10)]
    spent.append((5, 0, 3))
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
        "compile_s": np.array([[1.0, 1.0], [50.0, 5.0], [60.0, 12.0], [70.0, 30.0]]),
        "seconds_per_instruction": 0.5,
        "library_s": 0.0,
    }
    return Recording(**values | changes)

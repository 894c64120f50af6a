"""Policies for register allocation to compare with: plain functions from an observation.

LLVM's own heuristic is not among them: it cannot be asked, only left alone, and every comparison
has it as the baseline. Rules look at what LLVM sends as it is; a `use_def_density` that is NaN
belongs to a live range that may not be spilled, and counts as the largest.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mlgo_gym.corpus._corpus import Module
from mlgo_gym.llvm._compilation import Policy
from mlgo_gym.problems._regalloc_eviction import ASKING_POSITION, legal_positions
from mlgo_gym.stream._events import Observation

_READS_AND_WRITES = (
    "weighed_reads_by_max",
    "weighed_writes_by_max",
    "weighed_read_writes_by_max",
)


def first_legal(observation: Observation) -> int:
    """The first register of the allocation order that may be taken."""
    return legal_positions(observation)[0]


def keep(observation: Observation) -> int:
    """Evict nothing wherever that is legal; otherwise take the first legal position."""
    legal = legal_positions(observation)
    return ASKING_POSITION if ASKING_POSITION in legal else legal[0]


def lowest_density(observation: Observation) -> int:
    """Whoever's spill weight is lowest makes room, the live range that asks included."""
    return _least(observation, ("use_def_density",))


def lowest_reads_and_writes(observation: Observation) -> int:
    """Whoever is read and written least often makes room, the live range that asks included."""
    return _least(observation, _READS_AND_WRITES)


def random_legal(seed: int, module: Module) -> Policy:
    """Any legal position; the same seed and module give the same answers."""
    generator = np.random.default_rng([seed, *bytes.fromhex(module.sha256)])

    def answer(observation: Observation) -> int:
        return int(generator.choice(legal_positions(observation)))

    return answer


def by_size(observation: Observation) -> float:
    """Long live ranges before short ones."""
    return float(observation["li_size"][0])


def random_priority(seed: int, module: Module) -> Policy:
    """Live ranges in any order; the same seed and module give the same answers."""
    generator = np.random.default_rng([seed, *bytes.fromhex(module.sha256)])

    def answer(observation: Observation) -> float:  # noqa: ARG001
        return float(generator.integers(1 << 24))

    return answer


def _least(observation: Observation, names: Sequence[str]) -> int:
    """The legal position where the sum of some features is least, the first of equal ones."""
    values = np.sum([observation[name][0] for name in names], axis=0)
    values = np.nan_to_num(values, nan=np.inf)
    legal = legal_positions(observation)
    return legal[int(np.argmin(values[legal]))]

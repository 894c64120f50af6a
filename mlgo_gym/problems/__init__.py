"""Problems: the heuristics that LLVM hands out, as frozen values."""

from __future__ import annotations

from typing import Final

from mlgo_gym.problems.base import Action, Feature, Problem
from mlgo_gym.problems.inlining_for_size import InliningForSize
from mlgo_gym.problems.regalloc_eviction import RegallocEviction
from mlgo_gym.problems.regalloc_priority import RegallocPriority

__all__ = [
    "PROBLEMS",
    "Action",
    "Feature",
    "InliningForSize",
    "Problem",
    "RegallocEviction",
    "RegallocPriority",
]

PROBLEMS: Final = (InliningForSize, RegallocEviction, RegallocPriority)
"""Every problem there is."""

"""Problems: the heuristics that LLVM hands out, as frozen values."""

from __future__ import annotations

from typing import Final

from mlgo_gym.problems.base import Feature, Problem
from mlgo_gym.problems.inlining_for_size import InliningForSize

__all__ = ["PROBLEMS", "Feature", "InliningForSize", "Problem"]

PROBLEMS: Final = (InliningForSize,)
"""Every problem there is."""

"""Which problems there are."""

from __future__ import annotations

from typing import Final

from mlgo_gym.problems._inlining_for_size import InliningForSize
from mlgo_gym.problems._regalloc_eviction import RegallocEviction
from mlgo_gym.problems._regalloc_priority import RegallocPriority

PROBLEMS: Final = (InliningForSize, RegallocEviction, RegallocPriority)
"""Every problem there is."""

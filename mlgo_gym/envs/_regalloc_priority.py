"""``mlgo_gym/RegallocPriority-v0``: LLVM's allocation priorities as a Gymnasium environment."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Unpack

import numpy as np
from gymnasium import spaces

from mlgo_gym.corpus._corpus import Corpus
from mlgo_gym.envs._allocation_env import AllocationEnv, AllocationSettings
from mlgo_gym.envs._observation_space import feature_space
from mlgo_gym.errors import UsageError
from mlgo_gym.problems._policy import Action
from mlgo_gym.problems._regalloc_priority import HIGHEST_PRIORITY, RegallocPriority
from mlgo_gym.stream._events import Observation

_Vector = np.ndarray[Any, np.dtype[np.float32]]


class RegallocPriorityEnv(AllocationEnv[_Vector, RegallocPriority]):
    """One function an episode, one live range that is queued a step: how soon is it its turn?

    Observation: a ``Dict`` of LLVM's 3 features, each of shape ``(1,)``; their meanings and units
    stand in `problems._regalloc_priority`. The infinite ``weight`` of a live range that may
    not be spilled is replaced by the largest float32.

    Action: ``float32 (1,)``, 0 to `HIGHEST_PRIORITY`; the highest comes first, and LLVM drops what
    is after the point. Any other is an error, or with ``illegal_action="fallback"`` stands for the
    live range's size; ``info["illegal_action"]`` is then what it was.

    Episodes, rewards, info, options of ``reset`` and arguments are those of `RegallocEvictionEnv`,
    without masks and without the limit of evictions.

    Raises:
        CorpusError: the corpus cannot be used.
        OptionsError: a setting has a value that it cannot have.
    """

    def __init__(
        self, corpus: Corpus | str | Path | None = None, **settings: Unpack[AllocationSettings]
    ) -> None:
        super().__init__(corpus, RegallocPriority(), **settings)
        self.observation_space = feature_space(RegallocPriority.features)
        self.action_space = spaces.Box(0, HIGHEST_PRIORITY, (1,), np.float32)

    def _number(self, action: _Vector | Action) -> float:
        values = np.asarray(action)
        if values.size != 1 or values.dtype.kind not in "fiu":
            raise UsageError(f"{self.problem.advice.name}: expected one number, found {action!r}")
        return float(values.item())

    def _shown(self, pending: Observation) -> list[str]:
        return [f"  {name}: {values[0]:g}" for name, values in pending.items()]

"""``mlgo_gym/RegallocEviction-v0``: LLVM's eviction decisions as a Gymnasium environment."""

from __future__ import annotations

import operator
from pathlib import Path
from typing import Any, Unpack

import numpy as np
from gymnasium import spaces

from mlgo_gym.corpus._corpus import Corpus
from mlgo_gym.envs._allocation_env import AllocationEnv, AllocationSettings
from mlgo_gym.envs._observation_space import feature_space
from mlgo_gym.errors import UsageError
from mlgo_gym.llvm._compilation import Compilation
from mlgo_gym.problems._policy import Action
from mlgo_gym.problems._regalloc_eviction import (
    ASKING_POSITION,
    DEFAULT_EVICTION_COUNT,
    POSITIONS,
    RegallocEviction,
    legal_positions,
)
from mlgo_gym.stream._events import Observation


class RegallocEvictionEnv(AllocationEnv[np.int64, RegallocEviction]):
    """One function an episode, one live range without a register a step: who makes room?

    Observation: a ``Dict`` of LLVM's 21 features under LLVM's names, ``int64`` or ``float32``
    ``(1, 33)``, but ``progress``, ``float32 (1,)``; their meanings and units stand in
    `problems._regalloc_eviction`. NaN and infinity, which LLVM sends for live ranges that
    may not be spilled, are replaced by the feature's upper bound, 1. After the last decision no
    question is pending, and the observation is all zeros.

    Action: a position, 0 to 32, whose mask is 1: the live ranges there are evicted; 32 evicts
    nothing. The mask is ``info["action_mask"]``, ``int8 (33,)``, and ``action_masks()``,
    ``bool (33,)``; where no decision is pending only 32 is set. Any other action is an error, or
    with ``illegal_action="fallback"`` stands for 32 where that is legal and otherwise for the first
    legal one; ``info["illegal_action"]`` is then what it was.

    Reward: 0 until the last decision, then ``1 - score / baseline_score``, where the score is
    LLVM's own (`llvm.text._allocation_score`) and the baseline LLVM's own heuristic on the same
    function. Positive is better than LLVM. Where the baseline's score is 0, it is
    ``-log(1 + score)``.

    Info, always: ``module``; ``function``; ``decision``, the number of answers so far;
    ``action_mask``. While a decision is pending: ``context``, LLVM's name for it, the function.
    From ``reset``: ``skipped``, modules and functions that came up but cannot be used, with the
    reason; ``baseline_score``; ``settings``. At the end: ``score``; ``baseline_score``;
    ``counts``, the weighted instructions by kind; ``machine_code_sha256``; ``settings``. A function
    that crashes LLVM, outruns its deadline or takes more than its decisions ends its episode with
    ``truncated``, reward 0 and ``info["error"]``.

    ``reset`` goes on to the next function of the module that asks, in LLVM's order, and then to the
    next module; modules come in an order that is drawn from the seed, and a seed starts anew.
    Options: ``{"module": NAME}`` turns to the first function of that module of the corpus, a
    `mlgo_gym.corpus.Module` to that one's; ``{"function": NAME}`` to that function, of the module
    that is given or open.

    Args:
        corpus: a corpus, its folder, or ``None`` for the sample corpus in this package.
        illegal_action: ``error`` or ``fallback``.
        max_eviction_count: LLVM's limit of evictions of one live range, see `RegallocEviction`.
        decision_limit: a function that asks more often is truncated.
        settings: ``baseline``, ``opt_level``, ``timeout_s``, ``memory_limit_bytes`` and
            ``render_mode`` are those of `mlgo_gym.envs.InliningForSizeEnv`.

    Raises:
        CorpusError: the corpus cannot be used.
        OptionsError: a setting has a value that it cannot have.
    """

    def __init__(
        self,
        corpus: Corpus | str | Path | None = None,
        *,
        max_eviction_count: int = DEFAULT_EVICTION_COUNT,
        **settings: Unpack[AllocationSettings],
    ) -> None:
        super().__init__(corpus, RegallocEviction(max_eviction_count), **settings)
        self.observation_space = feature_space(RegallocEviction.features)
        self.action_space = spaces.Discrete(POSITIONS)

    def action_masks(self) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """The actions that LLVM takes now, ``bool (33,)``, as sb3-contrib's MaskablePPO asks."""
        if self._pending is None:
            return np.equal(np.arange(POSITIONS), ASKING_POSITION)
        mask: np.ndarray[Any, np.dtype[np.bool_]] = self._pending["mask"][0].astype(np.bool_)
        return mask

    def _info(self, compilation: Compilation) -> dict[str, Any]:
        return super()._info(compilation) | {"action_mask": self.action_masks().astype(np.int8)}

    def _number(self, action: np.int64 | Action) -> int:
        try:
            return operator.index(action)  # type: ignore[arg-type]
        except TypeError as error:
            raise UsageError(
                f"{self.problem.advice.name}: expected a position, found {action!r}"
            ) from error

    def _shown(self, pending: Observation) -> list[str]:
        density = pending["use_def_density"][0]
        return [
            f"  {position:2}: use_def_density {density[position]:.4f}"
            + (", evicts nothing" if position == ASKING_POSITION else "")
            for position in legal_positions(pending)
        ]

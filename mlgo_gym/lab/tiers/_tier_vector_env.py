"""Many runs of recorded programs at once, in one process: observations are made together."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from mlgo_gym.base import OptionsError
from mlgo_gym.lab.tiers._recording import Recording
from mlgo_gym.lab.tiers._tier_env import TierUpEnv, observed, seen

_Observations = NDArray[np.float32]
_Answers = NDArray[np.int64]


class TierUpVectorEnv(VectorEnv[_Observations, _Answers, NDArray[Any]]):
    """`TierUpEnv` several times: ``gymnasium.make_vec("mlgo_gym/TierUp-v0", num_envs=64)``.

    A row that has ended begins anew in the next step, whatever its action there
    (`AutoresetMode.NEXT_STEP`). Its info stands in the infos of the step in which it ends, and all
    rows' in those of `reset`: other steps have none.

    Args:
        num_envs: how many.
        recordings: as `TierUpEnv` takes them.
        threads: likewise.
        baseline: likewise.

    Raises:
        WorkloadError: a recording cannot be used.
        OptionsError: there is none, or a setting has a value that it cannot have.

    >>> envs = TierUpVectorEnv(2)
    >>> observations, infos = envs.reset(seed=1)
    >>> observations.shape, infos["function"].tolist()
    ((2, 19), ['main', 'main'])
    >>> envs.close()
    """

    metadata: dict[str, Any] = {  # noqa: RUF012 - as Gymnasium has it
        "render_modes": [],
        "autoreset_mode": AutoresetMode.NEXT_STEP,
    }

    def __init__(
        self,
        num_envs: int = 1,
        recordings: Recording | Path | str | Sequence[Recording | Path | str] | None = None,
        *,
        threads: int = 0,
        baseline: str = "ski-rental",
    ) -> None:
        if num_envs < 1:
            raise OptionsError(f"num_envs: expected at least 1, found {num_envs!r}")
        first = TierUpEnv(recordings, threads=threads, baseline=baseline)
        self._envs = [first, *(first.twin() for _ in range(num_envs - 1))]
        self.num_envs = num_envs
        self.single_observation_space = first.observation_space
        self.single_action_space = first.action_space
        self.observation_space = batch_space(first.observation_space, num_envs)
        self.action_space = batch_space(first.action_space, num_envs)
        self._over = np.zeros(num_envs, bool)

    def reset(
        self, *, seed: int | list[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[_Observations, dict[str, Any]]:
        """Begin all rows: with seeds from ``seed`` on, or each with its own of a list.

        Raises:
            OptionsError: no recording has the name in ``options``.
        """
        seeds: list[int | None]
        if isinstance(seed, list):
            seeds = seed
        else:
            seeds = [None if seed is None else seed + row for row in range(self.num_envs)]
        infos: dict[str, Any] = {}
        observations = []
        for row, (env, own) in enumerate(zip(self._envs, seeds, strict=True)):
            observation, info = env.reset(seed=own, options=options)
            observations.append(observation)
            infos = self._add_info(infos, info, row)
        self._over[:] = False
        return np.stack(observations), infos

    def step(
        self, actions: Any
    ) -> tuple[_Observations, NDArray[Any], NDArray[Any], NDArray[Any], dict[str, Any]]:
        """Answer all rows' events; those that have ended begin anew instead.

        Raises:
            OptionsError: an action is none of the space's.
        """
        infos: dict[str, Any] = {}
        rewards = np.zeros(self.num_envs)
        rows = []
        answers = np.asarray(actions).tolist()
        was_over = self._over.tolist()
        for row, env in enumerate(self._envs):
            if was_over[row]:
                replay = env.begin()
            else:
                rewards[row] = env.answer(answers[row])
                replay = env.replay
            is_over = replay.is_over
            if is_over:
                infos = self._add_info(infos, env.info(), row)
            self._over[row] = is_over
            rows.append(observed(replay))
        return seen(rows), rewards, self._over.copy(), np.zeros(self.num_envs, bool), infos

    def action_masks(self) -> NDArray[np.bool_]:
        """Which actions are allowed now; shape ``(num_envs, 8)``."""
        return np.stack([env.action_masks() for env in self._envs])

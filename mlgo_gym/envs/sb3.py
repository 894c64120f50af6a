"""Environments for stable-baselines3, which all compile at once.

It needs ``pip install stable-baselines3``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode
from stable_baselines3.common.vec_env import VecEnv

from mlgo_gym.envs._vector import CompilationVectorEnv
from mlgo_gym.envs._wrappers import FloatVectorObservation, SignedLogObservation, signed_log
from mlgo_gym.problems import Problem

Array = np.ndarray[Any, Any]
Observations = Array | dict[str, Array]


class SB3VecEnv(VecEnv):
    """N environments as a ``VecEnv`` of stable-baselines3, each with a worker of its own.

    It gives what a ``DummyVecEnv`` over the same environments gives; but all workers compile at the
    same time, where those of a ``DummyVecEnv`` wait for each other. `CompilationVectorEnv` has the
    details. ``action_masks`` works as sb3-contrib's MaskablePPO asks for it.

    Args:
        problem: what LLVM asks for, or its name.
        num_envs: how many.
        flat: observations are one ``float32`` vector of all features, each as
            ``sign(x) * log(1 + |x|)``, for ``MlpPolicy``; otherwise a dictionary of LLVM's own
            values, for ``MultiInputPolicy``.
        settings: of each environment, by name, as `mlgo_gym.envs.make_env` takes them.

    Raises:
        OptionsError: a setting has a value that it cannot have.
        CorpusError: the corpus cannot be used.

    >>> envs = SB3VecEnv("inlining-for-size", 2)
    >>> envs.reset().shape
    (2, 38)
    >>> _, rewards, dones, infos = envs.step(np.array([0, 1]))
    >>> rewards.tolist(), dones.tolist(), [int(info["decision"]) for info in infos]
    ([0.0, 0.0], [False, False], [1, 1])
    >>> envs.close()
    """

    def __init__(
        self, problem: str | Problem, num_envs: int = 1, *, flat: bool = True, **settings: Any
    ) -> None:
        self._envs = CompilationVectorEnv(
            problem, num_envs, autoreset_mode=AutoresetMode.SAME_STEP, **settings
        )
        first = self._envs.envs[0]
        space: gymnasium.Space[Any] = first.observation_space
        self._flat = flat
        if flat:
            space = FloatVectorObservation(SignedLogObservation(first)).observation_space
        self._actions: Array = np.zeros(num_envs)
        super().__init__(num_envs, space, first.action_space)

    def reset(self) -> Observations:
        """Start an episode in every row, by the seeds and options that were set."""
        observations, infos = self._envs.reset(seed=self._seeds, options=self._options[0])
        self.reset_infos = [_row_of(infos, row) for row in range(self.num_envs)]
        self._reset_seeds()
        self._reset_options()
        return self._shown(observations)

    def step_async(self, actions: Array) -> None:
        """Take the actions of the next step, one for each row."""
        self._actions = actions

    def step_wait(self) -> tuple[Observations, Array, Array, list[dict[str, Any]]]:
        """Step; rows that end start their next episode at once.

        Their infos are the last ones, with ``terminal_observation``.
        """
        observations, rewards, terminated, truncated, infos = self._envs.step(self._actions)
        dones = terminated | truncated
        rows = [_row_of(infos, row) for row in range(self.num_envs)]
        for row in map(int, np.flatnonzero(dones)):
            self.reset_infos[row] = rows[row]
            last = infos["final_obs"][row]
            rows[row] = _row_of(infos["final_info"], row)
            rows[row]["terminal_observation"] = _flattened(last, 1)[0] if self._flat else last
        for row, info in enumerate(rows):
            info["TimeLimit.truncated"] = bool(truncated[row] and not terminated[row])
        return self._shown(observations), rewards.astype(np.float32), dones, rows

    def close(self) -> None:
        """End all workers; safe to call twice."""
        self._envs.close()

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        """Return an attribute of the environments."""
        return [getattr(self._envs.envs[row], attr_name) for row in self._get_indices(indices)]

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        """Set an attribute of the environments."""
        for row in self._get_indices(indices):
            setattr(self._envs.envs[row], attr_name, value)

    def env_method(
        self, method_name: str, *method_args: Any, indices: Any = None, **method_kwargs: Any
    ) -> list[Any]:
        """Call a method of the environments, such as ``action_masks``."""
        methods = self.get_attr(method_name, indices)
        return [method(*method_args, **method_kwargs) for method in methods]

    def env_is_wrapped(self, wrapper_class: type, indices: Any = None) -> list[bool]:  # noqa: ARG002
        """No environment is wrapped by itself."""
        return [False for _ in self._get_indices(indices)]

    def _shown(self, observations: Mapping[str, Array]) -> Observations:
        return _flattened(observations, self.num_envs) if self._flat else dict(observations)


def _flattened(observations: Mapping[str, Array], count: int) -> Array:
    """The features of each row as one vector, as the wrappers of single environments make it."""
    features = [each.reshape(count, -1) for each in observations.values()]
    return signed_log(np.concatenate(features, axis=1))


def _row_of(infos: Mapping[str, Sequence[Any]], row: int) -> dict[str, Any]:
    """The info of a row, out of Gymnasium's batch."""
    return {
        name: values[row]
        for name, values in infos.items()
        if not name.startswith(("_", "final_")) and infos[f"_{name}"][row]
    }

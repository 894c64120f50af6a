"""Wrappers that RL code expects: one vector, tamed ranges, LLVM's default as an input."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from mlgo_gym.envs._observation_space import ObservationDict, boxes_of, dict_space
from mlgo_gym.problems import DEFAULT_ADVICE

Vector = np.ndarray[Any, np.dtype[np.float32]]


class FloatVectorObservation(
    gymnasium.ObservationWrapper[Vector, Any, ObservationDict],
    gymnasium.utils.RecordConstructorArgs,
):
    """All features as one ``float32`` vector, in LLVM's order. It goes around the other wrappers.

    Large counts are rounded to what a float32 holds.

    >>> import gymnasium, mlgo_gym
    >>> env = FloatVectorObservation(gymnasium.make("mlgo_gym/InliningForSize-v0"))
    >>> env.observation_space.shape
    (38,)
    >>> env.close()
    """

    def __init__(self, env: gymnasium.Env[ObservationDict, Any]) -> None:
        gymnasium.utils.RecordConstructorArgs.__init__(self)
        gymnasium.ObservationWrapper.__init__(self, env)
        boxes = boxes_of(env.observation_space)
        self.observation_space = spaces.Box(
            np.concatenate([box.low.ravel() for box in boxes.values()]).astype(np.float32),
            np.concatenate([box.high.ravel() for box in boxes.values()]).astype(np.float32),
            dtype=np.float32,
        )

    def observation(self, observation: ObservationDict) -> Vector:
        """Concatenate the features."""
        return np.concatenate(list(observation.values()), axis=None, dtype=np.float32)


class SignedLogObservation(
    gymnasium.ObservationWrapper[ObservationDict, Any, ObservationDict],
    gymnasium.utils.RecordConstructorArgs,
):
    """Every feature ``x`` as ``sign(x) * log(1 + |x|)``, ``float32``: comparable ranges.

    It needs no statistics, so it is the same in every run and in every worker. For zero mean and
    unit variance put `FloatVectorObservation` and Gymnasium's ``NormalizeObservation`` on top.

    >>> import gymnasium, mlgo_gym
    >>> env = SignedLogObservation(gymnasium.make("mlgo_gym/InliningForSize-v0"))
    >>> len(env.observation_space.spaces)
    38
    >>> env.close()
    """

    def __init__(self, env: gymnasium.Env[ObservationDict, Any]) -> None:
        gymnasium.utils.RecordConstructorArgs.__init__(self)
        gymnasium.ObservationWrapper.__init__(self, env)
        self.observation_space = dict_space(
            {
                name: spaces.Box(_signed_log(box.low), _signed_log(box.high), dtype=np.float32)
                for name, box in boxes_of(env.observation_space).items()
            }
        )

    def observation(self, observation: ObservationDict) -> ObservationDict:
        """Transform each feature."""
        return {name: _signed_log(value) for name, value in observation.items()}


class DefaultAdviceObservation(
    gymnasium.Wrapper[ObservationDict, Any, ObservationDict, Any],
    gymnasium.utils.RecordConstructorArgs,
):
    """LLVM's own answer as one more feature, ``inlining_default``: ``int64 (1,)``, 0 or 1.

    In the terminal observation it is 0, as all features are.

    >>> import gymnasium, mlgo_gym
    >>> env = DefaultAdviceObservation(gymnasium.make("mlgo_gym/InliningForSize-v0"))
    >>> "inlining_default" in env.observation_space.spaces
    True
    >>> env.close()
    """

    def __init__(self, env: gymnasium.Env[ObservationDict, Any]) -> None:
        gymnasium.utils.RecordConstructorArgs.__init__(self)
        gymnasium.Wrapper.__init__(self, env)
        boxes = boxes_of(env.observation_space)
        boxes[DEFAULT_ADVICE] = spaces.Box(0, 1, (1,), np.int64)
        self.observation_space = dict_space(boxes)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[ObservationDict, dict[str, Any]]:
        """Reset the environment and add the feature."""
        observation, info = self.env.reset(seed=seed, options=options)
        return _with_advice(observation, info), info

    def step(self, action: Any) -> tuple[ObservationDict, Any, bool, bool, dict[str, Any]]:
        """Step the environment and add the feature."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        return _with_advice(observation, info), reward, terminated, truncated, info


def _with_advice(observation: ObservationDict, info: dict[str, Any]) -> ObservationDict:
    return observation | {DEFAULT_ADVICE: np.array([info.get("default_advice", 0)], np.int64)}


def _signed_log(value: np.ndarray[Any, Any]) -> Vector:
    x = value.astype(np.float64)
    return np.asarray(np.sign(x) * np.log1p(np.abs(x)), np.float32)

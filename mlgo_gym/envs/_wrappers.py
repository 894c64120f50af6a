"""Wrappers that RL code expects: one vector, tamed ranges, LLVM's default as an input."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, Final

import gymnasium
import numpy as np
from gymnasium import spaces

from mlgo_gym.base import UsageError
from mlgo_gym.envs._observation_space import ObservationDict, boxes_of, dict_space
from mlgo_gym.problems import DEFAULT_ADVICE, Problem

_MASK: Final = "action_mask"

Vector = np.ndarray[Any, np.dtype[np.float32]]


class FloatVectorObservation(
    gymnasium.ObservationWrapper[Vector, Any, ObservationDict],
    gymnasium.utils.RecordConstructorArgs,
):
    """All features as one ``float32`` vector, in LLVM's order.

    Apply it last, around the other wrappers. Large counts are rounded to what a float32 holds.

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
                name: spaces.Box(signed_log(box.low), signed_log(box.high), dtype=np.float32)
                for name, box in boxes_of(env.observation_space).items()
            }
        )

    def observation(self, observation: ObservationDict) -> ObservationDict:
        """Transform each feature."""
        return {name: signed_log(value) for name, value in observation.items()}


class InfoObservation(
    gymnasium.Wrapper[dict[str, Any], Any, Any, Any], gymnasium.utils.RecordConstructorArgs
):
    """An observation that shows more than the environment's own, such as a part of the info."""

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Reset the environment and show more."""
        observation, info = self.env.reset(seed=seed, options=options)
        return self._shown(observation, info), info

    def step(self, action: Any) -> tuple[dict[str, Any], Any, bool, bool, dict[str, Any]]:
        """Step the environment and show more."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        return self._shown(observation, info), reward, terminated, truncated, info

    @abstractmethod
    def _shown(self, observation: Any, info: Mapping[str, Any]) -> dict[str, Any]:
        """The environment's own observation, and more."""


class DefaultAdviceObservation(InfoObservation):
    """LLVM's own answer as one more feature, ``inlining_default``: ``int64 (1,)``, 0 or 1.

    In the terminal observation it is 0, as all features are.

    Raises:
        UsageError: LLVM does not say what it would answer, as in register allocation.

    >>> import gymnasium, mlgo_gym
    >>> env = DefaultAdviceObservation(gymnasium.make("mlgo_gym/InliningForSize-v0"))
    >>> "inlining_default" in env.observation_space.spaces
    True
    >>> env.close()
    """

    def __init__(self, env: gymnasium.Env[ObservationDict, Any]) -> None:
        gymnasium.utils.RecordConstructorArgs.__init__(self)
        gymnasium.Wrapper.__init__(self, env)
        problem = getattr(env.unwrapped, "problem", None)
        if isinstance(problem, Problem) and not problem.says_default:
            raise UsageError(
                "DefaultAdviceObservation: expected an environment in which LLVM says what it "
                f"would answer, found {env}"
            )
        boxes = boxes_of(env.observation_space)
        boxes[DEFAULT_ADVICE] = spaces.Box(0, 1, (1,), np.int64)
        self.observation_space = dict_space(boxes)

    def _shown(self, observation: ObservationDict, info: Mapping[str, Any]) -> dict[str, Any]:
        advice = max(info.get("default_advice", 0), 0)  # -1 where no decision is pending
        return observation | {DEFAULT_ADVICE: np.array([advice], np.int64)}


class ActionMaskObservation(InfoObservation):
    """An observation with the mask of actions in it, for agents that look for the mask there.

    The observation is a dictionary of ``action_mask``, ``int8 (N,)``, and of the environment's own
    observation under another key. RLlib's action masking asks for ``observations``, the convention
    of PettingZoo is ``observation``.

    Args:
        env: an environment with masks.
        key: of the environment's own observation.

    Raises:
        UsageError: the environment has no masks, or the key is that of the mask.

    >>> import gymnasium, mlgo_gym
    >>> env = ActionMaskObservation(gymnasium.make("mlgo_gym/RegallocEviction-v0"))
    >>> observation, info = env.reset(options={"module": "graph.cpp"})
    >>> sorted(observation), observation["action_mask"].shape
    (['action_mask', 'observation'], (33,))
    >>> env.close()
    """

    def __init__(self, env: gymnasium.Env[Any, Any], *, key: str = "observation") -> None:
        gymnasium.utils.RecordConstructorArgs.__init__(self, key=key)
        gymnasium.Wrapper.__init__(self, env)
        own = env.action_space
        if not isinstance(own, spaces.Discrete) or not hasattr(env.unwrapped, "action_masks"):
            raise UsageError(
                f"ActionMaskObservation: expected an environment with masks, found {env}"
            )
        if key == _MASK:
            raise UsageError(f"ActionMaskObservation: expected another key than {_MASK!r}")
        self._key = key
        mask = spaces.Box(0, 1, (int(own.n),), np.int8)
        self.observation_space = spaces.Dict({_MASK: mask, key: env.observation_space})

    def _shown(self, observation: Any, info: Mapping[str, Any]) -> dict[str, Any]:  # noqa: ARG002
        masks = self.get_wrapper_attr("action_masks")()
        return {_MASK: masks.astype(np.int8), self._key: observation}


class LogScaleAction(
    gymnasium.ActionWrapper[ObservationDict, Vector, Any], gymnasium.utils.RecordConstructorArgs
):
    """Actions from -1 to 1 for a range that begins at 0 and spans many powers of two.

    ``a`` stands for ``(high + 1) ** ((a + 1) / 2) - 1``: -1 for 0, 1 for the highest, and equal
    steps for equal factors. LLVM's own priorities are a few hundred to a few thousand of four
    thousand million, so a linear scale can hardly tell two of them apart.

    Args:
        env: an environment with a box of actions from 0 up, such as ``RegallocPriority-v0``.

    Raises:
        UsageError: the environment's actions are not such a box.

    >>> import gymnasium, mlgo_gym
    >>> env = LogScaleAction(gymnasium.make("mlgo_gym/RegallocPriority-v0"))
    >>> [f"{env.action(np.array([a]))[0]:,.0f}" for a in (-1, -0.5, 0, 1)]
    ['0', '255', '65,535', '4,294,967,040']
    >>> env.close()
    """

    def __init__(self, env: gymnasium.Env[ObservationDict, Any]) -> None:
        gymnasium.utils.RecordConstructorArgs.__init__(self)
        gymnasium.ActionWrapper.__init__(self, env)
        own = env.action_space
        if not isinstance(own, spaces.Box) or own.low.any() or not np.isfinite(own.high).all():
            raise UsageError(
                f"LogScaleAction: expected a box of actions from 0 to a number, found {own}"
            )
        self._high = own.high.astype(np.float64)
        self._type = own.dtype
        self.action_space = spaces.Box(-1.0, 1.0, own.shape, np.float32)

    def action(self, action: Vector) -> Any:
        """The environment's own action."""
        share = (np.clip(np.asarray(action, np.float64), -1, 1) + 1) / 2
        exponent = share * np.log1p(self._high)
        return np.minimum(np.expm1(exponent), self._high).astype(self._type)


def signed_log(value: np.ndarray[Any, Any]) -> Vector:
    """Return ``sign(x) * log(1 + |x|)`` of each number."""
    x = value.astype(np.float64)
    return np.asarray(np.sign(x) * np.log1p(np.abs(x)), np.float32)

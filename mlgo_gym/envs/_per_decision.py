"""Rewards at every step, which sum to the episode's: what each answer changed."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import gymnasium
import numpy as np

from mlgo_gym.base import CompilationError, UsageError
from mlgo_gym.envs._decision_env import DecisionEnv
from mlgo_gym.envs._observation_space import ObservationDict

_ADVICE = "default_advice"


class PerDecisionReward(
    gymnasium.Wrapper[ObservationDict, Any, ObservationDict, Any],
    gymnasium.utils.RecordConstructorArgs,
):
    """Each step's reward is what its answer changed, against LLVM's own answers from there on.

    The value of a state is the reward that the episode would end with if LLVM answered all that is
    left. A step is worth the difference of two values: 0 where the answer is LLVM's own, else a
    fork is played to its end to see. So the steps sum to the episode's reward exactly, as in
    potential-based shaping (Ng, Harada and Russell, ICML 1999), and the best policy is the same.

    An answer other than LLVM's costs a fork and the rest of a compilation, about as long as an
    episode on the average. What the first decision has to bear besides is LLVM's own reward, 0
    unless the environment compares with another baseline. An episode that is truncated ends with
    ``reward_on_truncation``; so does a fork that LLVM does not bring to its end.

    Args:
        env: an environment of a problem for which LLVM says what it would answer.

    Raises:
        UsageError: LLVM does not say.

    >>> import gymnasium, mlgo_gym
    >>> env = PerDecisionReward(gymnasium.make("mlgo_gym/InliningForSize-v0"))
    >>> _, info = env.reset(options={"module": "digest.c"})
    >>> rewards, ended = [], False
    >>> while not ended:
    ...     _, reward, ended, _, info = env.step(0)
    ...     rewards.append(reward)
    >>> saved = 1 - info["text_size_bytes"] / info["baseline_text_size_bytes"]
    >>> len(rewards) > 1, bool(abs(sum(rewards) - saved) < 1e-9)
    (True, True)
    >>> env.close()
    """

    def __init__(self, env: gymnasium.Env[ObservationDict, Any]) -> None:
        gymnasium.utils.RecordConstructorArgs.__init__(self)
        gymnasium.Wrapper.__init__(self, env)
        self._value = 0.0
        self._owed = 0.0
        self._advice = -1.0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[ObservationDict, dict[str, Any]]:
        """Reset the environment, and find what LLVM's own answers are worth."""
        observation, info = self.env.reset(seed=seed, options=options)
        if _ADVICE not in info:
            raise UsageError(
                "PerDecisionReward: expected a problem for which LLVM says what it would answer, "
                f"found {self._own.problem.name}"
            )
        self._advice = info[_ADVICE].item()
        self._value = self._owed = self._worth(info)
        return observation, info

    def step(self, action: Any) -> tuple[ObservationDict, float, bool, bool, dict[str, Any]]:
        """Step the environment; the reward is what the answer changed."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        if terminated or truncated:
            value = float(reward)
        elif np.asarray(action).item() == self._advice:
            value = self._value
        else:
            value = self._worth(info)
        changed = value - self._value + self._owed
        self._value, self._owed, self._advice = value, 0.0, info[_ADVICE].item()
        return observation, changed, terminated, truncated, info

    @property
    def _own(self) -> DecisionEnv:
        own = self.env.unwrapped
        if not isinstance(own, DecisionEnv):
            raise UsageError(
                f"PerDecisionReward: expected an environment of LLVM's decisions, found {own}"
            )
        return own

    def _worth(self, info: dict[str, Any]) -> float:
        """The reward that the episode ends with if LLVM answers all that is left."""
        try:
            with closing(self._own.fork()) as branch:
                ended = False
                while not ended:
                    _, reward, terminated, truncated, info = branch.step(info[_ADVICE])
                    ended = terminated or truncated
        except CompilationError:
            return self._own.reward_on_truncation
        return reward

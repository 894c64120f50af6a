"""Rewards at every step, which sum to the episode's: what each answer changed."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from typing import Any

import gymnasium
import numpy as np

from mlgo_gym.base import CompilationError, UsageError
from mlgo_gym.envs._decision_env import DecisionEnv
from mlgo_gym.envs._observation_space import ObservationDict
from mlgo_gym.envs._wrappers import InfoObservation

_ADVICE = "default_advice"
_CHANGING = (gymnasium.ActionWrapper, gymnasium.ObservationWrapper, gymnasium.RewardWrapper)


class PerDecisionReward(
    gymnasium.Wrapper[ObservationDict, Any, ObservationDict, Any],
    gymnasium.utils.RecordConstructorArgs,
):
    """Reward each step by what its answer changes if LLVM answers all later questions itself.

    The value of a state is the reward that the episode would end with if LLVM answered all
    questions that are left. A step is worth the difference of two values: 0 where the answer is
    LLVM's own, else a fork is played to its end to see. So the steps sum to the episode's reward
    exactly, as in potential-based shaping (Ng, Harada and Russell, ICML 1999), and the best policy
    is the same.

    An answer other than LLVM's costs a fork and the rest of a compilation, about as long as an
    episode on the average. The first step also carries LLVM's own reward, which is 0 unless the
    environment compares with another baseline. An episode that is truncated ends with
    ``reward_on_truncation``; so does a fork that LLVM does not bring to its end.

    The register allocator does not say what LLVM would answer. There, ``default`` answers in LLVM's
    place.

    Args:
        env: the environment, without wrappers that change its observations.
        default: a function from an observation to an answer, in place of LLVM's own heuristic.

    Raises:
        UsageError: LLVM does not say what it would answer, and there is no ``default``, or a
            wrapper inside changes observations, actions or rewards.

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

    def __init__(
        self,
        env: gymnasium.Env[ObservationDict, Any],
        default: Callable[[ObservationDict], Any] | None = None,
    ) -> None:
        gymnasium.utils.RecordConstructorArgs.__init__(self, default=default)
        gymnasium.Wrapper.__init__(self, env)
        _check_inside(env)
        self._default = default
        self._value = 0.0
        self._owed = 0.0
        self._advice: Any = None

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[ObservationDict, dict[str, Any]]:
        """Reset the environment, and find what the default answers are worth."""
        observation, info = self.env.reset(seed=seed, options=options)
        if self._default is None and _ADVICE not in info:
            raise UsageError(
                "PerDecisionReward: expected default=, a policy that answers what is left, since "
                f"LLVM does not say what it would answer in {self._own.problem.name}; found None"
            )
        self._advice = self._answer(observation, info)
        self._value = self._owed = self._worth(self._advice)
        return observation, info

    def step(self, action: Any) -> tuple[ObservationDict, float, bool, bool, dict[str, Any]]:
        """Step the environment; the reward is what the answer changed."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        if terminated or truncated:
            value = float(reward)
        else:
            expected, self._advice = self._advice, self._answer(observation, info)
            is_default = np.array_equal(action, expected)
            value = self._value if is_default else self._worth(self._advice)
        changed = value - self._value + self._owed
        self._value, self._owed = value, 0.0
        return observation, changed, terminated, truncated, info

    def _answer(self, observation: ObservationDict, info: dict[str, Any]) -> Any:
        return info[_ADVICE].item() if self._default is None else self._default(observation)

    @property
    def _own(self) -> DecisionEnv:
        own = self.env.unwrapped
        if not isinstance(own, DecisionEnv):
            raise UsageError(
                f"PerDecisionReward: expected an environment of LLVM's decisions, found {own}"
            )
        return own

    def _worth(self, action: Any) -> float:
        """The reward that the episode ends with if the default answers all that is left."""
        try:
            with closing(self._own.fork()) as branch:
                while True:
                    observation, reward, terminated, truncated, info = branch.step(action)
                    if terminated or truncated:
                        return reward
                    action = self._answer(observation, info)
        except CompilationError:
            return self._own.reward_on_truncation


def _check_inside(env: gymnasium.Env[Any, Any]) -> None:
    """See that forks, which have no wrappers, show and take what the environment does."""
    while isinstance(env, gymnasium.Wrapper):
        if isinstance(env, (*_CHANGING, InfoObservation, PerDecisionReward)):
            raise UsageError(
                "PerDecisionReward: expected no wrapper inside that changes observations, actions "
                f"or rewards, found {type(env).__name__}"
            )
        env = env.env

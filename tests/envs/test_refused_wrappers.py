"""Wrappers that would show or reward something else than they say."""

from __future__ import annotations

from collections.abc import Callable

import gymnasium
import pytest

from mlgo_gym.envs import (
    ActionMaskObservation,
    DefaultAdviceObservation,
    FloatVectorObservation,
    PerDecisionReward,
    SignedLogObservation,
    make_env,
)
from mlgo_gym.errors import UsageError

Env = gymnasium.Env


@pytest.mark.parametrize("problem", ["regalloc-eviction", "regalloc-priority"])
def test_no_default_advice_where_llvm_gives_none(problem: str) -> None:
    with make_env(problem) as env, pytest.raises(UsageError, match="LLVM says what it would"):
        DefaultAdviceObservation(env)


@pytest.mark.parametrize(
    "inside",
    [
        SignedLogObservation,
        FloatVectorObservation,
        DefaultAdviceObservation,
        PerDecisionReward,
        lambda env: gymnasium.wrappers.TransformReward(env, lambda reward: 10 * float(reward)),
        lambda env: gymnasium.wrappers.TransformAction(env, lambda action: 1 - action, None),
    ],
)
def test_no_reward_for_each_decision_around_changes(inside: Callable[[Env], Env]) -> None:
    with make_env("inlining-for-size") as env, pytest.raises(UsageError, match="no wrapper"):
        PerDecisionReward(inside(env))


def test_no_mask_in_place_of_the_observation() -> None:
    with make_env("inlining-for-size") as env, pytest.raises(UsageError, match="another key than"):
        ActionMaskObservation(env, key="action_mask")


def test_limits_may_be_inside() -> None:
    with make_env("inlining-for-size") as env:
        PerDecisionReward(gymnasium.wrappers.TimeLimit(env, 5)).reset(seed=0)

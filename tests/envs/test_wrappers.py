"""Wrappers: values, spaces, and a fit with Gymnasium's own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from mlgo_gym.corpus._corpus import Corpus
from mlgo_gym.envs._compilation_env import CompilationEnv
from mlgo_gym.envs._per_decision import PerDecisionReward
from mlgo_gym.envs._wrappers import (
    DefaultAdviceObservation,
    FloatVectorObservation,
    SignedLogObservation,
)
from mlgo_gym.errors import OptionsError, UsageError
from mlgo_gym.problems._inlining_for_size import InliningForSize


@pytest.fixture
def env(small: Corpus) -> Iterator[CompilationEnv]:
    env = CompilationEnv(InliningForSize(), small)
    yield env
    env.close()


def test_one_vector(env: CompilationEnv) -> None:
    wrapped = FloatVectorObservation(env)
    vector, _ = wrapped.reset(options={"module": "frame_stream.c"})
    observation, _ = env.reset(options={"module": "frame_stream.c"})
    assert vector.dtype == np.float32
    assert vector.tolist() == [float(value[0]) for value in observation.values()]
    assert vector in wrapped.observation_space


def test_signed_log(env: CompilationEnv) -> None:
    wrapped = SignedLogObservation(env)
    logs, _ = wrapped.reset(options={"module": "frame_stream.c"})
    observation, _ = env.reset(options={"module": "frame_stream.c"})
    for name, value in observation.items():
        x = float(value[0])
        assert logs[name][0] == pytest.approx(np.sign(x) * np.log(1 + abs(x)), rel=1e-6)
    assert logs["callsite_cost"][0] < 0
    assert logs in wrapped.observation_space


def test_default_advice_as_an_input(env: CompilationEnv) -> None:
    wrapped = DefaultAdviceObservation(env)
    observation, info = wrapped.reset(options={"module": "frame_stream.c"})
    terminated, seen = False, set()
    while not terminated:
        assert observation["inlining_default"].tolist() == [info["default_advice"]]
        assert observation in wrapped.observation_space
        seen.add(info["default_advice"])
        observation, _, terminated, _, info = wrapped.step(0)
    assert seen == {0, 1}
    assert observation["inlining_default"].tolist() == [0]


@pytest.mark.e2e
@pytest.mark.filterwarnings("ignore:.*is different from the unwrapped version")
def test_all_together_as_rl_code_uses_them(env: CompilationEnv) -> None:
    wrapped: gymnasium.Env[Any, Any] = FloatVectorObservation(
        SignedLogObservation(DefaultAdviceObservation(env))
    )
    assert wrapped.observation_space.shape == (39,)
    check_env(wrapped, skip_render_check=True)
    normalised = gymnasium.wrappers.NormalizeObservation(
        FloatVectorObservation(SignedLogObservation(env))
    )
    normalised.reset(seed=0)
    vector, *_ = normalised.step(0)
    assert np.isfinite(vector).all()


def test_other_spaces() -> None:
    cart = gymnasium.make("CartPole-v1")
    for wrapper in (FloatVectorObservation, SignedLogObservation, DefaultAdviceObservation):
        with pytest.raises(
            OptionsError, match="^observation space: expected a Dict of Box spaces, found Box"
        ):
            wrapper(cart)
    cart.close()


def rewards_of(env: gymnasium.Env[Any, Any], seed: int, share: float) -> tuple[list[float], float]:
    """The rewards of an episode of random answers among LLVM's own, and what it saved."""
    numbers = np.random.default_rng(seed)
    _, info = env.reset(options={"module": "frame_stream.c"})
    rewards, ended = [], False
    while not ended:
        own = int(info["default_advice"])
        action = 1 - own if numbers.random() < share else own
        _, reward, ended, _, info = env.step(action)
        rewards.append(float(reward))
    return rewards, 1 - info["text_size_bytes"] / info["baseline_text_size_bytes"]


@pytest.mark.parametrize("baseline", [None, "never"])
@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_rewards_of_decisions_sum_to_the_episodes(
    small: Corpus, baseline: str | None, share: float
) -> None:
    env = CompilationEnv(InliningForSize(), small, baseline=baseline)
    plain, _ = rewards_of(env, 3, share)
    dense, saved = rewards_of(PerDecisionReward(env), 3, share)
    assert len(dense) == len(plain) > 1
    assert sum(dense) == pytest.approx(sum(plain)) == pytest.approx(saved)
    assert sum(map(bool, plain)) <= 1
    if share:
        assert sum(map(bool, dense)) > 1
    elif baseline is None:
        assert not any(dense)  # LLVM's own answers change nothing
    env.close()


def test_a_decision_is_worth_what_it_changed(small: Corpus) -> None:
    """One other answer, and LLVM's own behind it: the whole reward comes with that one."""
    env = PerDecisionReward(CompilationEnv(InliningForSize(), small))
    for place in (0, 2):
        _, info = env.reset(options={"module": "frame_stream.c"})
        rewards: list[float] = []
        ended = False
        while not ended:
            own = int(info["default_advice"])
            action = 1 - own if len(rewards) == place else own
            _, reward, ended, _, info = env.step(action)
            rewards.append(reward)
        saved = 1 - info["text_size_bytes"] / info["baseline_text_size_bytes"]
        assert rewards[place] == pytest.approx(saved)
        assert not any(rewards[:place] + rewards[place + 1 :])
    env.close()


def test_a_truncated_episode_ends_with_its_penalty(small: Corpus) -> None:
    inner = CompilationEnv(InliningForSize(), small, decision_limit=2, reward_on_truncation=-0.5)
    env = PerDecisionReward(inner)
    env.reset(options={"module": "frame_stream.c"})
    total, ended = 0.0, False
    while not ended:
        _, reward, _, ended, _ = env.step(0)
        total += reward
    assert total == pytest.approx(-0.5)
    env.close()


def lowest_allowed(observation: Mapping[str, Any]) -> int:
    return int(observation["mask"][0].nonzero()[0][0])


@pytest.mark.parametrize("place", [None, 0, 2, 5])
def test_decisions_of_register_allocation_are_worth_what_they_changed(place: int | None) -> None:
    """The first bears what the default policy changes; an answer like it changes nothing more."""
    env = PerDecisionReward(gymnasium.make("mlgo_gym/RegallocEviction-v0"), lowest_allowed)
    options = {"module": "json_write.c", "function": "write_list"}
    observation, _ = env.reset(options=options)
    rewards: list[float] = []
    ended = False
    while not ended:
        allowed = observation["mask"][0].nonzero()[0]
        action = int(allowed[-1 if len(rewards) == place else 0])
        observation, reward, ended, _, info = env.step(action)
        rewards.append(reward)
    assert sum(rewards) == pytest.approx(1 - info["score"] / info["baseline_score"])
    worth = {index for index, reward in enumerate(rewards) if reward}
    assert worth == {0, place or 0}
    env.close()


def test_what_has_no_decisions_of_llvms() -> None:
    env = PerDecisionReward(gymnasium.make("mlgo_gym/RegallocEviction-v0"))
    expected = "LLVM does not say what it would answer in RegallocEviction; found None"
    with pytest.raises(UsageError, match=f"PerDecisionReward: expected default=.*{expected}"):
        env.reset()
    env.close()
    other = PerDecisionReward(gymnasium.make("CartPole-v1"))
    with pytest.raises(UsageError, match="expected an environment of LLVM's decisions"):
        other.reset()

"""Our environments as stable-baselines3's ``VecEnv``: what ``DummyVecEnv`` gives, all at once."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest

from mlgo_gym import Corpus
from mlgo_gym.envs import FloatVectorObservation, SignedLogObservation

pytest.importorskip("stable_baselines3")
from stable_baselines3 import PPO
from stable_baselines3.common.vec_env import DummyVecEnv, VecMonitor, VecNormalize

from mlgo_gym.envs.sb3 import SB3VecEnv

SMALL = ("frame_stream.c", "hash_map.c", "regex_match.c")


def flat(env: gymnasium.Env[Any, Any]) -> gymnasium.Env[Any, Any]:
    return FloatVectorObservation(SignedLogObservation(env))


def same(one: Any, other: Any) -> bool:
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    return bool(np.array_equal(one, other))


@pytest.mark.parametrize("is_flat", [True, False])
@pytest.mark.parametrize("problem", ["inlining-for-size", "regalloc-eviction"])
def test_it_gives_what_a_dummy_gives(sample: Corpus, problem: str, is_flat: bool) -> None:
    corpus = sample.only(SMALL)
    settings: dict[str, Any] = {"corpus": corpus, "decision_limit": 30}
    name = "InliningForSize" if problem == "inlining-for-size" else "RegallocEviction"

    def make() -> gymnasium.Env[Any, Any]:
        env = gymnasium.make(f"mlgo_gym/{name}-v0", **settings)
        return flat(env) if is_flat else env

    ours, theirs = SB3VecEnv(problem, 2, flat=is_flat, **settings), DummyVecEnv([make] * 2)
    assert ours.observation_space == theirs.observation_space
    assert ours.action_space == theirs.action_space
    ours.seed(3)
    theirs.seed(3)
    assert same(ours.reset(), theirs.reset())
    ends = 0
    for number in range(70):
        masks = ours.env_method("action_masks")
        assert same(masks, theirs.env_method("action_masks"))
        actions = np.array([np.flatnonzero(mask)[number % mask.sum()] for mask in masks])
        got, expected = ours.step(actions), theirs.step(actions)
        assert same(got[0], expected[0])
        assert (got[1].dtype, got[1].tolist()) == (expected[1].dtype, expected[1].tolist())
        assert got[2].tolist() == expected[2].tolist()
        assert all(map(same, got[3], expected[3]))
        assert all(map(same, ours.reset_infos, theirs.reset_infos))
        ends += got[2].sum()
    assert ends > 2
    ours.close()
    theirs.close()


def test_ppo_learns_on_it(sample: Corpus) -> None:
    """Not well in so few steps; but it runs through, with SB3's own wrappers around."""
    envs = VecNormalize(VecMonitor(SB3VecEnv("inlining-for-size", 2, corpus=sample.only(SMALL))))
    model = PPO("MlpPolicy", envs, n_steps=32, batch_size=32, n_epochs=1, seed=0, device="cpu")
    model.learn(128)
    assert model.num_timesteps == 128
    assert len(model.ep_info_buffer or ()) > 0
    envs.close()


def test_attributes_and_seeds(sample: Corpus) -> None:
    envs = SB3VecEnv("inlining-for-size", 2, corpus=sample.only(SMALL))
    envs.seed(1)
    envs.set_options({"module": "hash_map.c"})
    envs.reset()
    assert [info["module"] for info in envs.reset_infos] == ["hash_map.c"] * 2
    assert [each["opt_level"] for each in envs.get_attr("settings")] == ["Oz", "Oz"]
    envs.set_attr("marked", 5, [1])
    assert envs.get_attr("marked", 1) == [5]
    assert envs.env_is_wrapped(gymnasium.Wrapper) == [False, False]
    envs.close()
    envs.close()

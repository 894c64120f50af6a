"""How often modules are drawn, and which row gets which."""

from __future__ import annotations

from collections import Counter
from typing import Any

import gymnasium
import numpy as np
import pytest

import mlgo_gym  # noqa: F401 - registers the environments
from mlgo_gym.base import OptionsError, UsageError
from mlgo_gym.corpus import SAMPLE_CORPUS, Corpus
from mlgo_gym.envs import ActionMaskObservation, LogScaleAction, make_env

NAMES = ("digest.c", "hash_map.c", "regex_match.c")


def drawn(env: gymnasium.Env[Any, Any], count: int) -> Counter[str]:
    env.reset(seed=0)
    return Counter(env.reset()[1]["module"] for _ in range(count))


@pytest.fixture
def corpus() -> Corpus:
    return Corpus.load(SAMPLE_CORPUS).only(NAMES)


def test_weights_by_name(corpus: Corpus) -> None:
    env: Any = make_env("inlining-for-size", corpus, weights={"digest.c": 3, "hash_map.c": 1})
    found = drawn(env, 40)
    assert set(found) == {"digest.c", "hash_map.c"}
    assert found["digest.c"] > found["hash_map.c"]
    env.unwrapped.weights = {"regex_match.c": 1}  # a curriculum goes on
    assert set(drawn(env, 3)) == {"regex_match.c"}
    env.close()


def test_weights_by_size(corpus: Corpus) -> None:
    env: Any = make_env("inlining-for-size", corpus, weights="size")
    sizes = np.array([corpus.size_bytes(name) for name in corpus.names], float)
    assert np.allclose(env.unwrapped._chances, sizes / sizes.sum())
    assert set(drawn(env, 30)) == set(NAMES)
    env.close()


def test_functions_of_modules_that_are_drawn() -> None:
    env: Any = make_env("regalloc-eviction", weights={"graph.cpp": 1})
    assert set(drawn(env, 3)) == {"graph.cpp"}
    env.unwrapped.weights = {"scene.cpp": 1}
    env.unwrapped.reset(seed=1)
    assert env.reset(seed=1)[1]["module"] == "scene.cpp"
    env.close()


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ("often", "weights: expected uniform, size or a mapping, found 'often'"),
        (3, "weights: expected uniform, size or a mapping, found 3"),
        ({"none.c": 1}, "weights: expected modules of the corpus, found 'none.c'"),
        ({"digest.c": 0}, "weights: expected finite numbers of 0 or more, some above 0"),
        ({"digest.c": -1}, "weights: expected finite numbers of 0 or more, some above 0"),
        ({"digest.c": np.nan}, "weights: expected finite numbers of 0 or more, some above 0"),
    ],
)
def test_weights_that_cannot_be(corpus: Corpus, weights: Any, message: str) -> None:
    with pytest.raises(OptionsError) as caught:
        make_env("inlining-for-size", corpus, weights=weights)
    assert str(caught.value) == message


def test_each_row_has_its_module(corpus: Corpus) -> None:
    envs = gymnasium.make_vec("mlgo_gym/InliningForSize-v0", num_envs=2, corpus=corpus)
    _, infos = envs.reset(options={"module": ["hash_map.c", "digest.c"]})
    assert list(infos["module"]) == ["hash_map.c", "digest.c"]
    _, infos = envs.reset(seed=0, options={"module": [None, "digest.c"]})
    assert infos["module"][1] == "digest.c"
    message = "reset options: module: expected one value or 2, found 1"
    with pytest.raises(OptionsError, match=message):
        envs.reset(options={"module": ["digest.c"]})
    envs.close()


def test_masks_in_observations() -> None:
    env = ActionMaskObservation(gymnasium.make("mlgo_gym/RegallocEviction-v0"), key="observations")
    observation, info = env.reset(options={"module": "graph.cpp"})
    ended = False
    while not ended:
        assert env.observation_space.contains(observation)
        assert (observation["action_mask"] == info["action_mask"]).all()
        action = observation["action_mask"].nonzero()[0][0]
        observation, _, terminated, truncated, info = env.step(action)
        ended = terminated or truncated
    assert env.observation_space.contains(observation)
    env.close()
    for name in ("CartPole-v1", "mlgo_gym/RegallocPriority-v0"):
        other = gymnasium.make(name)
        with pytest.raises(UsageError, match="expected an environment with masks"):
            ActionMaskObservation(other)
        other.close()


def test_priorities_on_a_scale() -> None:
    env = LogScaleAction(gymnasium.make("mlgo_gym/RegallocPriority-v0"))
    own = env.env.action_space
    for action in (-1.0, -0.2, 0.3, 1.0, 7.0):  # beyond the range it is the nearest
        assert own.contains(env.action(np.array([action], np.float32)))
    env.reset(options={"module": "graph.cpp"})
    _, _, _, _, info = env.step(env.action_space.sample())
    assert info["illegal_actions"] == 0
    env.close()
    with (
        gymnasium.make("mlgo_gym/InliningForSize-v0") as other,
        pytest.raises(UsageError, match="expected a box of actions"),
    ):
        LogScaleAction(other)

"""``mlgo_gym/TierUp-v0``: what Gymnasium's and stable-baselines3's checkers say, and rewards."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

import mlgo_gym  # noqa: F401 - registers the environments
from mlgo_gym.errors import OptionsError, UsageError, WorkloadError
from mlgo_gym.lab.tiers import SAMPLE_RECORDING
from mlgo_gym.lab.tiers._recording import Recording
from mlgo_gym.lab.tiers._schedules import played, schedule_named
from mlgo_gym.lab.tiers._tier_env import FEATURES, TierUpEnv, TierUpVectorEnv
from tests.lab.tiers.conftest import profiled, small


@pytest.mark.parametrize("threads", [0, 2])
def test_it_is_an_environment(threads: int) -> None:
    env = gymnasium.make("mlgo_gym/TierUp-v0", threads=threads)
    check_env(env.unwrapped)
    env.close()


def test_stable_baselines3_takes_it() -> None:
    checker = pytest.importorskip("stable_baselines3.common.env_checker")
    checker.check_env(TierUpEnv())


def episode(env: TierUpEnv, policy: Any, **options: Any) -> tuple[float, dict[str, Any]]:
    total, over = 0.0, False
    _, info = env.reset(seed=0, options=options)
    while not over:
        _, reward, over, _, info = env.step(policy(env))
        total += reward
    return total, info


@pytest.mark.parametrize("name", ["O0", "O2", "hotspot", "ski-rental"])
def test_rewards_sum_to_what_was_saved(name: str) -> None:
    recording = Recording.load(SAMPLE_RECORDING)
    policy = schedule_named(name)
    total, info = episode(TierUpEnv(recording), lambda env: policy(env.replay))
    base = played(recording, schedule_named("ski-rental")).total_s
    took = played(recording, policy).total_s
    assert total == pytest.approx(1 - took / base)
    assert info["seconds"] == pytest.approx(took)
    assert info["baseline_seconds"] == pytest.approx(base)
    assert info["oracle_seconds"] <= took * (1 + 1e-12)  # sums are rounded


@pytest.mark.parametrize("threads", [0, 2])
def test_rows_of_a_vector_are_environments(threads: int) -> None:
    """Seeds, observations, rewards and ends are those of as many single ones."""
    recordings = [Recording.load(SAMPLE_RECORDING), small(), profiled()]
    envs = TierUpVectorEnv(3, recordings, threads=threads)
    ones = [TierUpEnv(recordings, threads=threads) for _ in range(3)]
    batch, infos = envs.reset(seed=7)
    singles = [env.reset(seed=7 + row) for row, env in enumerate(ones)]
    assert (batch == [observation for observation, _ in singles]).all()
    assert infos["recording"].tolist() == [info["recording"] for _, info in singles]
    over = [False] * 3
    ended = 0
    numbers = np.random.default_rng(0)
    for _ in range(800):
        assert (envs.action_masks() == [env.action_masks() for env in ones]).all()
        actions = numbers.choice(8, 3, p=[0.86, *[0.02] * 7])
        batch, rewards, overs, cut, infos = envs.step(actions)
        assert batch in envs.observation_space
        for row, env in enumerate(ones):
            if over[row]:
                observation, _ = env.reset()
                reward, over[row] = 0.0, False
            else:
                observation, reward, over[row], _, info = env.step(actions[row])
                if over[row]:
                    ended += 1
                    assert infos["seconds"][row] == info["seconds"]
            assert (batch[row] == observation).all()
            assert rewards[row] == reward
        assert overs.tolist() == over
        assert not cut.any()
    assert ended > 10


def test_make_vec_makes_one_of_many_rows() -> None:
    envs = gymnasium.make_vec("mlgo_gym/TierUp-v0", num_envs=2)
    assert isinstance(envs.unwrapped, TierUpVectorEnv)
    envs.close()
    with pytest.raises(OptionsError, match="num_envs: expected at least 1, found 0"):
        TierUpVectorEnv(0)
    with pytest.raises(OptionsError, match=r"num_envs: expected at least 1, found 1\.5"):
        TierUpVectorEnv(1.5)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("actions", "message"),
    [
        ([0, 8], "action: expected 0 to 7, found 8"),
        ([0], "actions: expected 2 numbers, found [0]"),
        ([0, 1, 2], "actions: expected 2 numbers, found [0, 1, 2]"),
        ([0, 1.5], "actions: expected 2 numbers, found [0, 1.5]"),
        (None, "actions: expected 2 numbers, found None"),
    ],
)
def test_a_wrong_action_moves_no_row(actions: Any, message: str) -> None:
    envs = TierUpVectorEnv(2, small())
    envs.reset()
    before = [env.replay.event for env in envs._envs]
    with pytest.raises(OptionsError) as caught:
        envs.step(actions)
    assert str(caught.value) == message
    assert [env.replay.event for env in envs._envs] == before


@pytest.mark.parametrize("action", [1.5, math.nan, None, "1", [0, 1], 10**400])
def test_actions_that_are_none(action: Any) -> None:
    env = TierUpEnv(small())
    env.reset()
    with pytest.raises(OptionsError) as caught:
        env.step(action)
    assert str(caught.value) == f"action: expected 0 to 7, found {action!r}"


def test_the_info_has_the_same_keys_and_types_at_every_step() -> None:
    env = TierUpEnv(small())
    _, info = env.reset()
    kinds = {name: type(value) for name, value in info.items()}
    over = False
    while not over:
        _, _, over, _, info = env.step(0)
        assert {name: type(value) for name, value in info.items()} == kinds


def test_what_is_not_allowed_goes_on_and_is_counted() -> None:
    env = TierUpEnv(small())
    env.reset()
    env.step(2)
    while env.replay.function != 0 and env.replay.event < 2:
        assert env.action_masks().tolist() == [True] * 4 + [False] * 4
        env.step(3)
    assert env.action_masks().tolist() == [True] + [False] * 7
    _, _, _, _, info = env.step(1)
    assert info["illegal_actions"] == 1
    assert env.replay.tier[1] == 3


def test_an_observation_is_in_its_space() -> None:
    env = TierUpEnv(small())
    observation, _ = env.reset()
    assert len(observation) == len(FEATURES)
    named = dict(zip(FEATURES, observation.tolist(), strict=True))
    assert named["tier"] == -1
    assert named["calls"] == 1  # log2(1 + 1)
    assert named["size"] == pytest.approx(np.log2(21))
    over = False
    while not over:
        observation, _, over, _, _ = env.step(env.action_space.sample())
        assert observation in env.observation_space


def test_recordings_take_turns(tmp_path: Path) -> None:
    small().save(tmp_path / "a.npz")
    small(program="a/c").save(tmp_path / "b.npz")
    env = TierUpEnv(tmp_path)
    names = {str(env.reset(seed=3 if not i else None)[1]["recording"]) for i in range(2)}
    assert names == {"a/b", "a/c"}
    assert env.reset(options={"recording": "a/c"})[1]["recording"] == "a/c"
    with pytest.raises(OptionsError, match="recording: expected one of a/b, a/c, found 'x'"):
        env.reset(options={"recording": "x"})
    with pytest.raises(OptionsError, match=r"expected only 'recording', found \['program'\]"):
        env.reset(options={"program": "a/c"})


def test_bad_arguments(tmp_path: Path) -> None:
    with pytest.raises(OptionsError, match=r"recordings: expected files \.npz in .*, found none"):
        TierUpEnv(tmp_path)
    with pytest.raises(OptionsError, match="recordings: expected a recording, found none"):
        TierUpEnv([])
    with pytest.raises(OptionsError, match="expected each program once, found a/b twice"):
        TierUpEnv([small(), small()])
    with pytest.raises(WorkloadError, match="cannot be read: No such file"):
        TierUpEnv(tmp_path / "none.npz")
    with pytest.raises(OptionsError, match="policy: expected one of"):
        TierUpEnv(baseline="best")


def test_steps_outside_of_episodes() -> None:
    env = TierUpEnv(small())
    for use in (lambda: env.step(0), env.action_masks, lambda: env.replay):
        with pytest.raises(UsageError, match="expected an episode, found none; call reset"):
            use()
    env.reset()
    with pytest.raises(OptionsError, match="action: expected 0 to 7, found 8"):
        env.step(8)
    episode(env, lambda _: 0)
    with pytest.raises(UsageError, match="expected an episode"):
        env.step(0)


def test_what_a_person_sees() -> None:
    env = TierUpEnv(small(), render_mode="ansi")
    assert env.render() == "no episode\n"
    env.reset()
    assert env.render() == (
        "a/b, event 0, 0.000 s\n  main: 1 calls\n  its code: no code yet; it has taken 0.000 s\n"
        "  allowed: go on, O1, O2, O3\n"
    )
    episode(env, lambda _: 0)
    assert env.render().endswith("the program has ended after 25.500 s\n")
    assert TierUpEnv(small()).render() is None
    picture = TierUpEnv(small(), render_mode="rgb_array").render()
    assert picture.shape == (480, 800, 3)
    with pytest.raises(OptionsError, match="render_mode: expected None, 'ansi' or 'rgb_array'"):
        TierUpEnv(small(), render_mode="human")

"""The priority environment: what differs from eviction's."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from mlgo_gym.corpus._corpus import Corpus
from mlgo_gym.envs._allocation_env import AllocationEnv
from mlgo_gym.errors import UsageError
from mlgo_gym.problems._regalloc_priority import RegallocPriority


@pytest.fixture
def env(sample: Corpus) -> Iterator[AllocationEnv]:
    env = AllocationEnv(
        RegallocPriority(),
        Corpus(sample.folder, ("expr_vm.c",)),
        illegal_action="error",
        render_mode="ansi",
    )
    yield env
    env.close()


def test_an_episode_is_a_function(env: AllocationEnv) -> None:
    observation, info = env.reset(options={"function": "expr_run", "module": "expr_vm.c"})
    assert (list(observation), info["function"]) == (["li_size", "stage", "weight"], "expr_run")
    ended, infinite = False, 0
    while not ended:
        assert observation in env.observation_space
        assert env._pending is not None
        infinite += int(np.isinf(env._pending["weight"][0]))
        action = np.array([observation["li_size"][0]], np.float32)
        observation, reward, terminated, truncated, info = env.step(action)
        ended = terminated or truncated
    assert infinite > 0
    assert reward == pytest.approx(1 - info["score"] / info["baseline_score"])
    assert "  no decision is pending" in str(env.render())


@pytest.mark.parametrize(
    ("action", "message"),
    [
        (np.array([-1.0]), "priority: expected 0 to 4294967040, found -1.0"),
        (np.array([np.nan]), "priority: expected 0 to 4294967040, found nan"),
        (np.array([1.0, 2.0]), "priority: expected 0 to 4294967040, found array([1., 2.])"),
        ("1", "priority: expected 0 to 4294967040, found '1'"),
    ],
)
def test_actions_that_are_none(env: AllocationEnv, action: Any, message: str) -> None:
    env.reset(seed=0)
    with pytest.raises(UsageError) as caught:
        env.step(action)
    assert str(caught.value) == message
    env.step(np.array([1.0], np.float32))


def test_illegal_actions_fall_back(sample: Corpus) -> None:
    env = AllocationEnv(RegallocPriority(), Corpus(sample.folder, ("expr_vm.c",)))
    env.reset(seed=0)
    *_, info = env.step(-3.0)
    assert info["illegal_actions"] == 1
    env.close()

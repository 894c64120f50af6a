"""Hundreds of episodes: this process stays as it is, its workers stay below their limit."""

from __future__ import annotations

import psutil
import pytest

from mlgo_gym.corpus._corpus import Corpus
from mlgo_gym.envs._allocation_env import AllocationEnv
from mlgo_gym.envs._compilation_env import CompilationEnv
from mlgo_gym.problems._inlining_for_size import InliningForSize
from mlgo_gym.problems._regalloc_eviction import RegallocEviction

LIMIT_BYTES = 150 << 20


@pytest.mark.stress
def test_memory_is_bounded(small: Corpus) -> None:
    env = CompilationEnv(InliningForSize(), small, memory_limit_bytes=LIMIT_BYTES)
    workers = set()
    after_warm_up = 0
    for episode in range(1000):
        env.reset(seed=episode)
        worker = env.compiler.worker_pid
        assert worker is not None
        workers.add(worker)
        assert psutil.Process(worker).memory_info().rss < LIMIT_BYTES + (20 << 20)
        ended = episode % 10 == 9
        while not ended:
            *_, terminated, truncated, info = env.step(int(env.np_random.integers(2)))
            assert "error" not in info
            ended = terminated or truncated
        if episode == 200:
            after_warm_up = psutil.Process().memory_info().rss
    assert psutil.Process().memory_info().rss < 1.05 * after_warm_up
    assert len(workers) > 1
    env.close()


@pytest.mark.stress
def test_ten_thousand_episodes_of_any_action(sample: Corpus) -> None:
    """Actions without regard to the mask: LLVM never aborts, nothing hangs, nothing is left."""
    env = AllocationEnv(
        RegallocEviction(), sample, illegal_action="fallback", memory_limit_bytes=LIMIT_BYTES
    )
    env.action_space.seed(0)
    workers, after_warm_up = set(), 0
    for episode in range(10_000):
        _, info = env.reset(seed=0 if episode == 0 else None)
        workers.add(env.compiler.worker_pid)
        ended = episode % 50 == 49  # some are abandoned
        while not ended:
            *_, terminated, truncated, info = env.step(env.action_space.sample())
            assert "error" not in info
            ended = terminated or truncated
        if episode == 1000:
            after_warm_up = psutil.Process().memory_info().rss
    assert psutil.Process().memory_info().rss < 1.05 * after_warm_up
    assert 1 <= len(workers) < 1000
    env.close()

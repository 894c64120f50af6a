"""Thousands of compilations: this process stays as it is, its workers stay below their limit."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from dataclasses import dataclass

import psutil
import pytest

from mlgo_gym.corpus._corpus import Corpus, Module
from mlgo_gym.envs._allocation_env import AllocationEnv
from mlgo_gym.envs._compilation_env import CompilationEnv
from mlgo_gym.llvm._compiler import Compiler
from mlgo_gym.problems._inlining_for_size import InliningForSize
from mlgo_gym.problems._regalloc_eviction import RegallocEviction

LIMIT_BYTES = 150 << 20
MOST_BYTES = 5 << 20
WARM_UP = 20


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
            assert not info["error"]
            ended = terminated or truncated
        if episode == 200:
            after_warm_up = psutil.Process().memory_info().rss
    assert psutil.Process().memory_info().rss < 1.05 * after_warm_up
    assert len(workers) > 1
    env.close()


@pytest.mark.stress
def test_ten_thousand_episodes_of_any_action(sample: Corpus) -> None:
    """Actions without regard to the mask: LLVM never aborts, nothing hangs, nothing is left."""
    env = AllocationEnv(RegallocEviction(), sample, memory_limit_bytes=LIMIT_BYTES)
    env.action_space.seed(0)
    workers, after_warm_up = set(), 0
    for episode in range(10_000):
        _, info = env.reset(seed=0 if episode == 0 else None)
        workers.add(env.compiler.worker_pid)
        ended = episode % 50 == 49  # some are abandoned
        while not ended:
            *_, terminated, truncated, info = env.step(env.action_space.sample())
            assert not info["error"]
            ended = terminated or truncated
        if episode == 1000:
            after_warm_up = psutil.Process().memory_info().rss
    assert psutil.Process().memory_info().rss < 1.05 * after_warm_up
    assert 1 <= len(workers) < 1000
    env.close()


@dataclass(frozen=True)
class Held:
    """What this process has open, started and in memory."""

    descriptors: int
    children: int
    size_bytes: int

    @classmethod
    def now(cls) -> Held:
        gc.collect()
        own = psutil.Process()
        return cls(own.num_fds(), len(own.children(recursive=True)), own.memory_info().rss)


def grown(turn: Callable[[int], None], count: int) -> Held:
    """What is held more after so many turns than after the first few."""
    for number in range(WARM_UP):
        turn(number)
    before = Held.now()
    for number in range(count):
        turn(number)
    after = Held.now()
    sys.stdout.write(f"{count} turns: {before} {after}\n")
    return Held(
        after.descriptors - before.descriptors,
        after.children - before.children,
        after.size_bytes - before.size_bytes,
    )


def hold_nothing(held: Held) -> None:
    assert (held.descriptors, held.children) == (0, 0)
    assert held.size_bytes < MOST_BYTES


@pytest.mark.stress
def test_five_thousand_compilations(small: Corpus) -> None:
    """By LLVM's own answers, or ours; a worker is replaced when it has grown."""
    modules = [small[name] for name in small]
    with Compiler(memory_limit_bytes=LIMIT_BYTES) as compiler:

        def compile_one(number: int) -> None:
            module = modules[number % len(modules)]
            if number % 2:
                compiler.compile_module(module)
            else:
                compiler.compile_module(module, problem=InliningForSize(), policy=lambda _: 0)

        hold_nothing(grown(compile_one, 5000))


@pytest.mark.stress
def test_a_thousand_forks(small: Corpus) -> None:
    """Half of the branches are gone on with to the end, half are closed as they are."""
    module = largest(small)
    with Compiler(timeout_s=60) as compiler:

        def fork_one(number: int) -> None:
            with compiler.start(module, InliningForSize()) as compilation:
                assert compilation.next_observation() is not None
                with compilation.fork() as branch:
                    branch.answer(number % 2)
                    while number % 2 and branch.next_observation() is not None:
                        branch.answer(0)

        hold_nothing(grown(fork_one, 1000))


@pytest.mark.stress
def test_five_hundred_abandoned_environments(small: Corpus) -> None:
    """Nobody closes them, in the middle of an episode; they go with their last name."""

    def abandon(number: int) -> None:
        env = CompilationEnv(InliningForSize(), small)
        env.reset(seed=number)
        env.step(number % 2)

    hold_nothing(grown(abandon, 500))


def largest(corpus: Corpus) -> Module:
    return max((corpus[name] for name in corpus), key=lambda module: len(module.data))

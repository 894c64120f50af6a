"""Memory and leftovers over many episodes of random answers, a tenth of them abandoned.

What it grows is counted from a tenth of the episodes on.

Prints the resident memory of this process and of its worker along the way, and at the end the
processes, FIFOs and descriptors that are left.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import gymnasium
import psutil

import mlgo_gym
from mlgo_gym.envs import CompilationEnv

MEMORY_LIMIT_BYTES = 256 << 20
"""Half the default, so that workers are seen to be replaced."""


def run(episodes: int) -> None:
    env = gymnasium.make(
        "mlgo_gym/InliningForSize-v0",
        corpus=mlgo_gym.SAMPLE_CORPUS,
        memory_limit_bytes=MEMORY_LIMIT_BYTES,
    )
    env.action_space.seed(0)
    inner = env.unwrapped
    if not isinstance(inner, CompilationEnv):
        raise TypeError(inner)
    warm_up = max(1, episodes // 10)
    parent, workers = psutil.Process(), set[int]()
    after_warm_up = 0
    most = 0
    for episode in range(episodes + 1):
        if episode % warm_up == 0:
            own = parent.memory_info().rss
            after_warm_up = own if episode == warm_up else after_warm_up
            print(
                f"{episode:6} episodes: parent {mib(own)}, worker at most {mib(most)}", flush=True
            )
        _, info = env.reset(seed=0 if episode == 0 else None)
        workers.add(inner.compiler.worker_pid or 0)
        most = max(most, psutil.Process(inner.compiler.worker_pid).memory_info().rss)
        ended = episode % 10 == 9
        while not ended:
            _, _, terminated, truncated, info = env.step(env.action_space.sample())
            ended = terminated or truncated
        if info["error"]:
            raise RuntimeError(info["error"])
    growth = parent.memory_info().rss / after_warm_up - 1
    env.close()
    left = [each for each in workers if psutil.pid_exists(each)]
    folders = list(Path(tempfile.gettempdir()).glob(f"mlgo-gym-{parent.pid}-*"))
    print(f"parent after episode {warm_up}: {100 * growth:+.1f} %; workers used: {len(workers)}")
    print(f"left over: processes {left}, FIFO folders {folders}, descriptors {parent.num_fds()}")


def mib(size: int) -> str:
    return f"{size / 2**20:.1f} MiB"

"""How many decisions a second replays and `TierUp-v0` make, on one core.

python -m benchmarks.tiers [FILE ...]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path

import gymnasium
import numpy as np

import mlgo_gym  # noqa: F401 - registers the environments
from mlgo_gym.lab.tiers import SAMPLE_RECORDING, Recording, Replay, TierUpEnv, schedule_named

COUNT, MANY = 8, 256


def run(recording: Recording, seconds: float) -> None:
    replay, policy = Replay(recording), schedule_named("ski-rental")

    def play() -> int:
        replay.reset()
        steps = 0
        while not replay.is_over:
            replay.decide(policy(replay))
            steps += 1
        return steps

    env, wrapped = TierUpEnv(recording), made(recording)
    envs = gymnasium.vector.SyncVectorEnv([lambda: TierUpEnv(recording)] * COUNT)
    many = gymnasium.make_vec("mlgo_gym/TierUp-v0", num_envs=MANY, recordings=recording)
    for name, episode in (
        ("a replay under ski rental", play),
        ("the environment", lambda: stepped(env)),
        ("gymnasium.make", lambda: stepped(wrapped)),
        (f"{COUNT} in SyncVectorEnv, all together", lambda: vector_stepped(envs)),
        (f"{MANY} in make_vec, all together", lambda: vector_stepped(many)),
    ):
        print(f"{recording.program}, {name}: {rate(episode, seconds):,.0f} steps a second")


def made(recording: Recording) -> gymnasium.Env[np.ndarray, np.int64]:
    return gymnasium.make("mlgo_gym/TierUp-v0", recordings=recording)


def rate(episode: Callable[[], int], seconds: float) -> float:
    """Steps a second of processor time, over as many episodes as fit."""
    episode()
    steps, start = 0, time.process_time()
    while (took := time.process_time() - start) < seconds:
        steps += episode()
    return steps / took


def stepped(env: gymnasium.Env[np.ndarray, np.int64]) -> int:
    env.reset(seed=0)
    steps, over = 0, False
    while not over:
        _, _, over, _, _ = env.step(np.int64(0))
        steps += 1
    return steps


def vector_stepped(envs: gymnasium.vector.VectorEnv[np.ndarray, np.ndarray, np.ndarray]) -> int:
    envs.reset(seed=0)
    actions = np.zeros(envs.num_envs, np.int64)
    steps = 0
    while True:
        _, _, over, _, _ = envs.step(actions)
        steps += envs.num_envs
        if over.all():
            return steps


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("recordings", nargs="*", type=Path, default=[SAMPLE_RECORDING])
    parser.add_argument("--seconds", type=float, default=3)
    options = parser.parse_args()
    for path in options.recordings:
        run(Recording.load(path), options.seconds)


if __name__ == "__main__":
    main()

"""One episode for each of five functions: LLVM's allocator asks, legal answers by chance."""

from __future__ import annotations

import gymnasium

import mlgo_gym  # noqa: F401 - registers the environments

env = gymnasium.make("mlgo_gym/RegallocEviction-v0")
env.action_space.seed(0)
for episode in range(5):
    observation, info = env.reset(seed=0 if episode == 0 else None)
    ended = False
    while not ended:
        action = env.action_space.sample(info["action_mask"])
        observation, reward, terminated, truncated, info = env.step(action)
        ended = terminated or truncated
    print(f"{info['function']}: {info['decision']} decisions, reward {float(reward):+.4f}")
env.close()

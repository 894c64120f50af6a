"""One episode: LLVM's inliner asks, a rule of ours answers, and the object is weighed."""

from __future__ import annotations

import gymnasium

import mlgo_gym  # noqa: F401 - registers the environments

env = gymnasium.make("mlgo_gym/InliningForSize-v0")
observation, info = env.reset(seed=0)
ended = False
while not ended:
    action = int(observation["cost_estimate"][0] < 10)
    observation, reward, terminated, truncated, info = env.step(action)
    ended = terminated or truncated
env.close()
print(f"{info['module']}: {info['decision']} decisions, reward {float(reward):+.4f}")

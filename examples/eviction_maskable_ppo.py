"""MaskablePPO of sb3-contrib on eviction: it runs; a policy worth having takes more steps.

``pip install sb3-contrib`` brings it, and PyTorch.
"""

from __future__ import annotations

import gymnasium
import torch._dynamo  # noqa: F401 - loads Triton, which takes no TensorFlow before it
from sb3_contrib import MaskablePPO

import mlgo_gym  # noqa: F401 - registers the environments

env = gymnasium.make("mlgo_gym/RegallocEviction-v0")
model = MaskablePPO("MultiInputPolicy", env, n_steps=64, batch_size=32, n_epochs=2, seed=0)
model.learn(total_timesteps=128)
observation, info = env.reset(seed=1)
ended = False
while not ended:
    masks = info["action_mask"] != 0
    action, _ = model.predict(observation, action_masks=masks, deterministic=True)
    observation, reward, terminated, truncated, info = env.step(action)
    ended = terminated or truncated
env.close()
print(f"{info['function']}: {info['decision']} decisions, reward {float(reward):+.4f}")

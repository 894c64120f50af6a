"""PPO of stable-baselines3 on the inliner, from LLVM's rule on, as a model that LLVM takes.

``pip install stable-baselines3 'mlgo-gym[train]'`` brings what it needs. The policy starts as a
clone of LLVM's default: one that starts by chance makes code twice as large. So few steps teach it
nothing; 100,000 and more are usual.
"""

from __future__ import annotations

import functools
import tempfile
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import torch
import torch._dynamo  # loads Triton, which takes no TensorFlow before it
from stable_baselines3 import PPO
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

from mlgo_gym import SAMPLE_CORPUS, Compiler, Corpus, InliningForSize
from mlgo_gym.envs import FloatVectorObservation, SignedLogObservation
from mlgo_gym.runners import ReleaseModeModelRunner, RunnerPolicy
from mlgo_gym.training import VectorNormalization, export_torch


def make() -> gymnasium.Env[np.ndarray, np.int64]:
    env = gymnasium.make("mlgo_gym/InliningForSize-v0")
    return FloatVectorObservation(SignedLogObservation(env))


def defaults(count: int) -> tuple[np.ndarray, np.ndarray]:
    """What LLVM sends, as the wrappers show it, and its own answers."""
    env = make()
    vectors, answers = [], list[int]()
    vector, info = env.reset(seed=0)
    while len(answers) < count:
        vectors.append(vector)
        answers.append(info["default_advice"])
        vector, _, terminated, truncated, info = env.step(np.int64(answers[-1]))
        if terminated or truncated:
            vector, info = env.reset()
    env.close()
    return np.stack(vectors), np.array(answers)


envs = VecNormalize(DummyVecEnv([make]), training=False, norm_reward=False)
model = PPO("MlpPolicy", envs, n_steps=128, batch_size=64, n_epochs=2, seed=0, device="cpu")
layers = torch.nn.Sequential(model.policy.mlp_extractor.policy_net, model.policy.action_net)

vectors, answers = defaults(500)
statistics: Any = envs.obs_rms
statistics.mean, statistics.var = vectors.mean(axis=0), vectors.var(axis=0)
inputs, targets = torch.tensor(envs.normalize_obs(vectors)).float(), torch.tensor(answers)
optimizer = torch.optim.Adam(layers.parameters(), 1e-3)
for _ in range(200):
    optimizer.zero_grad()
    loss = torch.nn.functional.cross_entropy(layers(inputs), targets, label_smoothing=0.05)
    loss.backward()  # type: ignore[no-untyped-call]
    optimizer.step()
agree = float((layers(inputs).argmax(-1) == targets).float().mean())

model.learn(total_timesteps=256)
envs.close()

seen = VectorNormalization(
    signed_log=True,
    mean=tuple(statistics.mean.tolist()),
    variance=tuple(statistics.var.tolist()),
    epsilon=envs.epsilon,
    limit=envs.clip_obs,
)
module = Corpus.load(SAMPLE_CORPUS)["scene.cpp"]
with tempfile.TemporaryDirectory() as folder, Compiler() as compiler:
    export_torch(layers, InliningForSize(), Path(folder) / "model", normalization=seen)
    policy = RunnerPolicy(functools.partial(ReleaseModeModelRunner, Path(folder) / "model"))
    plain = compiler.compile_module(module)
    mine = compiler.compile_module(module, problem=InliningForSize(), policy=policy)
print(
    f"The clone agrees with LLVM on {agree:.0%}; "
    f"{module.name}: {mine.text_size_bytes} bytes instead of {plain.text_size_bytes}"
)

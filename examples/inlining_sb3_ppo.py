"""PPO of stable-baselines3 on the inliner, and its policy as a model that LLVM takes.

``pip install stable-baselines3 'mlgo-gym[train]'`` brings what it needs. So few steps teach it
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
from mlgo_gym.training import VectorNormalization, export_torch_mlp


def make() -> gymnasium.Env[np.ndarray, np.int64]:
    env = gymnasium.make("mlgo_gym/InliningForSize-v0")
    return FloatVectorObservation(SignedLogObservation(env))


envs = VecNormalize(DummyVecEnv([make]), norm_reward=False)
model = PPO("MlpPolicy", envs, n_steps=128, batch_size=64, n_epochs=2, seed=0, device="cpu")
model.learn(total_timesteps=256)
envs.close()

layers = torch.nn.Sequential(model.policy.mlp_extractor.policy_net, model.policy.action_net)
statistics: Any = envs.obs_rms
seen = VectorNormalization(
    signed_log=True,
    mean=tuple(statistics.mean.tolist()),
    variance=tuple(statistics.var.tolist()),
    epsilon=envs.epsilon,
    limit=envs.clip_obs,
)
module = Corpus.load(SAMPLE_CORPUS)["scene.cpp"]
with tempfile.TemporaryDirectory() as folder, Compiler() as compiler:
    export_torch_mlp(layers, InliningForSize(), Path(folder) / "model", normalization=seen)
    policy = RunnerPolicy(functools.partial(ReleaseModeModelRunner, Path(folder) / "model"))
    plain = compiler.compile_module(module)
    mine = compiler.compile_module(module, problem=InliningForSize(), policy=policy)
print(f"{module.name}: {mine.text_size_bytes} bytes instead of {plain.text_size_bytes}")

"""PPO of RLlib on the inliner: one iteration, whose two workers compile beside each other.

``pip install 'mlgo-gym[scale]'`` brings Ray, at the version that this was tried with; PyTorch is
installed before, in the build of your choice. Ray starts a cluster on this machine;
``ray.init(address=...)`` would take another.
"""

from __future__ import annotations

import logging
from typing import Any

import gymnasium
import ray
from ray.rllib.algorithms.ppo import PPOConfig
from ray.tune.registry import register_env

from mlgo_gym.envs import FloatVectorObservation, SignedLogObservation


def make(_: dict[str, Any]) -> gymnasium.Env[Any, Any]:
    env = gymnasium.make("mlgo_gym/InliningForSize-v0")
    return FloatVectorObservation(SignedLogObservation(env))


ray.init(num_cpus=3, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
register_env("inlining", make)
config = (
    PPOConfig()
    .environment("inlining")
    .env_runners(num_env_runners=2, rollout_fragment_length=128)
    .training(train_batch_size=256, minibatch_size=64, num_epochs=2)
    .debugging(seed=0, log_level="ERROR")
)
algorithm = config.build_algo()
sampled = algorithm.train()["env_runners"]
algorithm.stop()
ray.shutdown()
print(f"{sampled['num_env_steps_sampled']:.0f} decisions in one iteration")

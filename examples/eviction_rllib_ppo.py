"""PPO of RLlib on eviction: env runners on a cluster's nodes take only what LLVM would take.

``python examples/eviction_rllib_ppo.py auto``, on a node of the cluster; without an address a
cluster is started here. ``pip install 'mlgo-gym[scale]'`` brings Ray, at the version that this was
tried with; PyTorch is installed before, in the build of your choice. Nodes need both, too.
"""

from __future__ import annotations

import logging
import sys
from typing import Any

import gymnasium
import ray
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.core.rl_module.rl_module import RLModuleSpec
from ray.rllib.examples.rl_modules.classes.action_masking_rlm import ActionMaskingTorchRLModule
from ray.tune.registry import register_env

from mlgo_gym.envs import ActionMaskObservation, FloatVectorObservation, SignedLogObservation


def make(_: dict[str, Any]) -> gymnasium.Env[Any, Any]:
    env = gymnasium.make("mlgo_gym/RegallocEviction-v0")
    return ActionMaskObservation(
        FloatVectorObservation(SignedLogObservation(env)), key="observations"
    )


def count(*, metrics_logger: Any, samples: Any, **_: Any) -> None:
    """What an env runner has sampled, by its node, and how much of it LLVM would not have taken."""
    node = ray.get_runtime_context().get_node_id()
    for episode in samples:
        illegal = episode.get_infos()[-1]["illegal_actions"]
        metrics_logger.log_value(("actions", node), len(episode), reduce="sum")
        metrics_logger.log_value("illegal", illegal, reduce="sum")


address = sys.argv[1] if sys.argv[1:] else "local"
ray.init(address, log_to_driver=False, logging_level=logging.ERROR)
register_env("eviction", make)
runners = int(ray.cluster_resources()["CPU"])
config = (
    PPOConfig()
    .environment("eviction")
    .env_runners(num_env_runners=runners, rollout_fragment_length=64)
    .training(train_batch_size=64 * runners, minibatch_size=64, num_epochs=2)
    .rl_module(rl_module_spec=RLModuleSpec(module_class=ActionMaskingTorchRLModule))
    .callbacks(on_sample_end=count)
    .debugging(seed=0, log_level="ERROR")
)
algorithm = config.build_algo()
sampled = algorithm.train()["env_runners"]
algorithm.stop()
ray.shutdown()
counts = [int(each) for each in sampled["actions"].values()]
print(f"{sum(counts)} actions on {len(counts)} nodes, {sampled['illegal']} illegal: {counts}")

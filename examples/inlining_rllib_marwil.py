"""MARWIL of RLlib on datasets of the inliner: what saved more is imitated more.

``python examples/inlining_rllib_marwil.py ADDRESS DATASET...``: a cluster's address or ``local``,
and what ``mlgo-gym dataset record`` has written, in folders that all nodes see. Besides what
eviction_rllib_ppo.py needs, ``pip install 'mlgo-gym[train]'`` brings what reads datasets.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np
import ray
import torch
from ray.rllib.algorithms.marwil import MARWILConfig
from ray.rllib.offline.offline_data import OfflineData

from mlgo_gym import InliningForSize
from mlgo_gym.datasets import Dataset
from mlgo_gym.envs import FloatVectorObservation, SignedLogObservation

FEATURES = InliningForSize().layout.feature_names


class Decisions(OfflineData):  # type: ignore[misc]
    """A dataset's columns as RLlib's."""

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.data: Any = self.data.map_batches(columns)


def columns(batch: Mapping[str, Any]) -> dict[str, Any]:
    """Decisions as episodes of one step each: from each on, its module's reward is what comes."""
    x = np.stack([batch[name] for name in FEATURES], axis=1).astype(np.float64)
    return {
        "obs": (np.sign(x) * np.log1p(np.abs(x))).astype(np.float32),  # as SignedLogObservation
        "actions": batch["action"],
        "rewards": batch["reward"].astype(np.float32),
        "terminateds": np.ones(len(x), bool),
    }


address, *folders = sys.argv[1:]
dataset = Dataset.open(*folders, problem=InliningForSize.name)
ray.init(address, log_to_driver=False, logging_level=logging.ERROR)
env = FloatVectorObservation(SignedLogObservation(gymnasium.make("mlgo_gym/InliningForSize-v0")))
config = (
    MARWILConfig()
    .environment(observation_space=env.observation_space, action_space=env.action_space)
    .offline_data(
        input_=[str(part.path) for part in dataset.parts],
        input_read_method_kwargs={"columns": [*FEATURES, "action", "reward"]},
        offline_data_class=Decisions,
        ignore_final_observation=True,
        map_batches_kwargs={"concurrency": 1},
        dataset_num_iters_per_learner=1,
    )
    .training(beta=1.0, lr=1e-3, train_batch_size_per_learner=64)
    .debugging(seed=0, log_level="ERROR")
)
env.close()
algorithm = config.build_algo()
for _ in range(3 * dataset.row_count // 64):
    algorithm.train()
(learner,) = algorithm.learner_group.foreach_learner(lambda each: each.module["default_policy"])
module, same = learner.get(), 0
for batch in dataset.batches():
    logits = module.forward_inference({"obs": torch.from_numpy(columns(batch)["obs"])})
    answers = logits["action_dist_inputs"].argmax(1).numpy()
    same += int((answers == batch["inlining_default"]).sum())
algorithm.stop()
ray.shutdown()
print(f"{dataset.row_count} decisions; LLVM's own answer to {same / dataset.row_count:.1%} of them")

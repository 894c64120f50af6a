"""The agents of inlining_ppo.py, by PPO of RLlib: the same network, rewards and model.

::

    python inlining_rllib_ppo.py --corpus corpora --decisions 32768 --seed 0 --agent agent-0.pt
    python inlining_ppo.py --join agent-0.pt --model model

``pip install 'mlgo-gym[scale]'`` brings Ray, at the version that this was tried with; PyTorch is
installed before, in the build of your choice. One env runner and one learner in this process are
enough here; eviction_rllib_ppo.py has env runners on the nodes of a cluster.
"""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import ray
import torch
from inlining_ppo import (
    CLIP,
    ENTROPY,
    ENVS,
    EPOCHS,
    LEARNING_RATE,
    MINIBATCH,
    STEPS,
    Agent,
    keep,
    make,
    parser_of_training,
)
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.core import DEFAULT_MODULE_ID
from ray.rllib.core.rl_module.apis import ValueFunctionAPI
from ray.rllib.core.rl_module.rl_module import RLModuleSpec
from ray.rllib.core.rl_module.torch import TorchRLModule
from ray.tune.registry import register_env


class AgentModule(TorchRLModule, ValueFunctionAPI):  # type: ignore[misc]
    """The agent in the place of RLlib's networks."""

    def setup(self) -> None:
        """Make the networks."""
        self.agent = Agent()

    def _forward(self, batch: dict[str, Any], **_: Any) -> dict[str, Any]:
        logits, _ = self.agent(batch["obs"])
        return {"action_dist_inputs": logits}

    def compute_values(self, batch: dict[str, Any], **_: Any) -> torch.Tensor:
        """How good the states are."""
        values: torch.Tensor = self.agent(batch["obs"])[1]
        return values


def main() -> None:
    options = parser_of_training(__doc__).parse_args()
    torch.set_num_threads(1)
    logging.getLogger("ray.rllib").setLevel(logging.ERROR)
    ray.init("local", log_to_driver=False, logging_level=logging.ERROR)
    register_env("inlining", lambda _: make(options.corpus, options.most_bytes))
    updates = max(1, options.decisions // (STEPS * ENVS))
    decisions = updates * STEPS * ENVS
    config = (
        PPOConfig()
        .environment("inlining")
        .env_runners(
            num_env_runners=0,
            num_envs_per_env_runner=ENVS,
            gym_env_vectorize_mode="async",
            rollout_fragment_length=STEPS,
        )
        .training(
            lr=[[0, LEARNING_RATE], [0.95 * decisions, 0.05 * LEARNING_RATE]],
            train_batch_size=STEPS * ENVS,
            minibatch_size=MINIBATCH,
            num_epochs=EPOCHS,
            gamma=0.0,  # each decision is worth its own reward
            lambda_=0.0,
            clip_param=CLIP,
            use_kl_loss=False,
            vf_loss_coeff=0.25,
            entropy_coeff=ENTROPY,
            grad_clip=0.5,
            grad_clip_by="global_norm",
        )
        .rl_module(rl_module_spec=RLModuleSpec(module_class=AgentModule))
        .debugging(seed=options.seed * 1000, log_level="ERROR")
    )
    algorithm = config.build_algo()
    module = algorithm.get_module()
    seen = [episode.get_observations() for episode in algorithm.env_runner.sample()]
    module.agent.look_at(np.concatenate(seen))
    algorithm.learner_group.set_weights({DEFAULT_MODULE_ID: module.get_state()})
    for _ in range(updates):
        algorithm.train()
    keep(module.agent, decisions, options)
    algorithm.stop()
    ray.shutdown()


if __name__ == "__main__":
    main()

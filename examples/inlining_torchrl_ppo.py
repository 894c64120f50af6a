"""The agents of inlining_ppo.py, by PPO of TorchRL: the same network, rewards and model.

::

    python inlining_torchrl_ppo.py --corpus corpora --decisions 32768 --seed 0 --agent agent-0.pt
    python inlining_ppo.py --join agent-0.pt --model model

``pip install torchrl`` brings what it needs.
"""

from __future__ import annotations

import warnings
from functools import partial
from pathlib import Path

import torch
from gymnasium.vector import AsyncVectorEnv, AutoresetMode
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
from tensordict.nn import TensorDictModule
from torch import nn
from torchrl.collectors import Collector
from torchrl.envs import GymWrapper
from torchrl.modules import ProbabilisticActor
from torchrl.objectives import ClipPPOLoss
from torchrl.objectives.value import GAE


class Part(nn.Module):
    """The agent's logits or its value alone, by their place."""

    def __init__(self, agent: Agent, place: int) -> None:
        super().__init__()
        self.agent, self.place = agent, place

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        """One of the two."""
        found: torch.Tensor = self.agent(features)[self.place]
        return found if self.place == 0 else found[..., None]


def environments(folder: Path | None, most_bytes: int) -> GymWrapper:
    """Gymnasium's processes, since TorchRL's ParallelEnv keeps a core busy while it waits."""
    envs = AsyncVectorEnv(
        [partial(make, folder, most_bytes)] * ENVS, autoreset_mode=AutoresetMode.DISABLED
    )
    return GymWrapper(envs, categorical_action_encoding=True)


def main() -> None:
    options = parser_of_training(__doc__).parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(options.seed)
    warnings.simplefilter("ignore")  # of how TorchRL will be in its next version
    agent = Agent()
    actor = ProbabilisticActor(
        TensorDictModule(Part(agent, 0), ["observation"], ["logits"]),
        in_keys=["logits"],
        distribution_class=torch.distributions.Categorical,
        return_log_prob=True,
    )
    critic = TensorDictModule(Part(agent, 1), ["observation"], ["state_value"])
    advantage = GAE(gamma=0.0, lmbda=0.0, value_network=critic)  # each has its own reward
    loss = ClipPPOLoss(
        actor, critic, clip_epsilon=CLIP, entropy_coeff=ENTROPY, critic_coeff=0.5,
        normalize_advantage=True,
    )  # fmt: skip
    optimizer = torch.optim.Adam(agent.parameters(), LEARNING_RATE)
    env = environments(options.corpus, options.most_bytes)
    env.set_seed(options.seed * 1000)
    with torch.no_grad():
        seen = env.rollout(STEPS, actor, auto_reset=True, break_when_any_done=False)
    agent.look_at(seen["observation"].flatten(0, 1).numpy())
    batch = STEPS * ENVS
    updates = max(1, options.decisions // batch)
    collector = Collector(env, actor, frames_per_batch=batch, total_frames=updates * batch)
    for update, decisions in enumerate(collector):
        optimizer.param_groups[0]["lr"] = LEARNING_RATE * max(0.05, 1 - update / updates)
        flat = decisions.reshape(-1)
        advantage(flat)
        for _ in range(EPOCHS):
            for rows in torch.split(torch.randperm(batch), MINIBATCH):
                terms = loss(flat[rows])
                total = terms["loss_objective"] + terms["loss_critic"] + terms["loss_entropy"]
                optimizer.zero_grad()
                total.backward()
                nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
                optimizer.step()
    collector.shutdown()
    keep(agent, updates * batch, options)


if __name__ == "__main__":
    main()

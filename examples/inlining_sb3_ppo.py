"""The agents of inlining_ppo.py, by PPO of stable-baselines3: the same network, rewards and model.

::

    python inlining_sb3_ppo.py --corpus corpora --decisions 32768 --seed 0 --agent agent-0.pt
    python inlining_ppo.py --join agent-0.pt --model model

``pip install stable-baselines3`` brings what it needs.
"""

from __future__ import annotations

from functools import partial
from typing import Any, ClassVar

import numpy as np
import torch
import torch._dynamo  # loads Triton, which takes no TensorFlow before it
from inlining_ppo import (
    CLIP,
    ENTROPY,
    ENVS,
    EPOCHS,
    LEARNING_RATE,
    MINIBATCH,
    STEPS,
    Agent,
    choices,
    keep,
    make,
    parser_of_training,
)
from stable_baselines3 import PPO
from stable_baselines3.common.policies import ActorCriticPolicy, BasePolicy
from stable_baselines3.common.vec_env import SubprocVecEnv
from torch import nn


class Networks(nn.Module):
    """The agent in the place where stable-baselines3 has the layers of policy and value."""

    latent_dim_pi, latent_dim_vf = 2, 1

    def __init__(self) -> None:
        super().__init__()
        self.agent = Agent()

    def forward(self, features: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The logits, and the value."""
        logits, value = self.agent(features)
        return logits, value[..., None]

    def forward_actor(self, features: torch.Tensor) -> torch.Tensor:
        """The logits alone."""
        logits, _ = self.forward(features)
        return logits

    def forward_critic(self, features: torch.Tensor) -> torch.Tensor:
        """The value alone."""
        _, value = self.forward(features)
        return value


class WithoutLayers(BasePolicy):
    """A policy of one's own networks alone: it comes before one of the library's policies."""

    networks: ClassVar[type[nn.Module]]

    def _build_mlp_extractor(self) -> None:
        self.mlp_extractor: Any = self.networks()

    def _build(self, lr_schedule: Any) -> None:
        self.ortho_init = False  # the agent starts at LLVM's rule
        library: Any = super()
        library._build(lr_schedule)  # noqa: SLF001 - what its policies override
        self.action_net: Any = nn.Identity()
        self.value_net: Any = nn.Identity()
        self.optimizer = torch.optim.Adam(self.parameters(), lr_schedule(1))


class AgentPolicy(WithoutLayers, ActorCriticPolicy):
    """The agent as a policy of stable-baselines3."""

    networks = Networks


def main() -> None:
    options = parser_of_training(__doc__).parse_args()
    torch.set_num_threads(1)
    envs = SubprocVecEnv([partial(make, options.corpus, options.most_bytes)] * ENVS)
    model = PPO(
        AgentPolicy,
        envs,
        learning_rate=lambda left: LEARNING_RATE * max(0.05, left),
        n_steps=STEPS,
        batch_size=MINIBATCH,
        n_epochs=EPOCHS,
        gamma=0.0,  # each decision is worth its own reward
        clip_range=CLIP,
        ent_coef=ENTROPY,
        seed=options.seed,
        device="cpu",
    )
    networks: Any = model.policy.mlp_extractor
    agent: Agent = networks.agent
    envs.seed(options.seed * 1000)
    seen: list[Any] = [envs.reset()]
    for _ in range(STEPS - 1):
        with torch.no_grad():
            logits, _ = agent(torch.tensor(seen[-1]))
        seen.append(envs.step(choices(logits).sample().numpy())[0])
    agent.look_at(np.concatenate(seen))
    model.learn(options.decisions)
    envs.close()
    keep(agent, model.num_timesteps, options)


if __name__ == "__main__":
    main()

"""The agents of inlining_ppo.py, by PPO of stable-baselines3: the same network, rewards and model.

::

    python inlining_sb3_ppo.py --corpus corpora --decisions 32768 --seed 0 --agent agent-0.pt
    python inlining_ppo.py --join agent-0.pt --model model

``pip install stable-baselines3`` brings what it needs.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
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
    SQUEEZE,
    STEPS,
    Agent,
    choices,
    make,
    mean_reward,
    modules,
    parser_of_training,
)
from stable_baselines3 import PPO
from stable_baselines3.common.policies import ActorCriticPolicy
from stable_baselines3.common.vec_env import SubprocVecEnv
from torch import nn


def squeezed(folder: Path | None, most_bytes: int) -> gymnasium.Env[Any, Any]:
    """An environment whose rewards are small numbers."""
    env = make(folder, most_bytes)
    return gymnasium.wrappers.TransformReward(
        env, lambda reward: float(np.tanh(float(reward) / SQUEEZE))
    )


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


class AgentPolicy(ActorCriticPolicy):
    """A policy without further layers."""

    def _build_mlp_extractor(self) -> None:
        self.mlp_extractor: Any = Networks()

    def _build(self, lr_schedule: Any) -> None:
        self.ortho_init = False  # the agent starts at LLVM's rule
        super()._build(lr_schedule)
        self.action_net: Any = nn.Identity()
        self.value_net: Any = nn.Identity()
        self.optimizer = torch.optim.Adam(self.parameters(), lr_schedule(1))


def main() -> None:
    options = parser_of_training(__doc__).parse_args()
    torch.set_num_threads(1)
    envs = SubprocVecEnv([partial(squeezed, options.corpus, options.most_bytes)] * ENVS)
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
    reward = mean_reward(agent, modules(options.unseen, options.most_bytes))
    print(f"{model.num_timesteps:,} decisions: mean reward {reward:+.4f}")
    if options.agent:
        torch.save(agent.state_dict(), options.agent)


if __name__ == "__main__":
    main()

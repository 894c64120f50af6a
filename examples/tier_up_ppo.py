"""Learn when to compile, by stable-baselines3's PPO, and look at programs not trained on.

python examples/tier_up_ppo.py --train a.npz b.npz --test c.npz --steps 300000

Recordings are made by `mlgo-gym tiers record`. Each line says how many percent a program takes
above the best decisions in hindsight: after ski rental, and after the agent, which takes its most
likely action.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import cast

import numpy as np
import torch
from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_vec_env

from mlgo_gym.lab.tiers import SAMPLE_RECORDING, TierUpEnv

ENVIRONMENTS = 8


def trained(recordings: Sequence[Path], steps: int, seed: int) -> PPO:
    """An agent that begins by going on nearly always, and learns when not to."""
    torch.set_num_threads(1)
    envs = make_vec_env(lambda: TierUpEnv(recordings), ENVIRONMENTS, seed=seed)
    agent = PPO(
        "MlpPolicy",
        envs,
        n_steps=2048,
        batch_size=2048,
        n_epochs=5,
        gamma=1.0,
        gae_lambda=0.99,
        learning_rate=1e-3,
        policy_kwargs={"net_arch": [32, 32]},
        seed=seed,
    )
    with torch.no_grad():
        head = cast("torch.nn.Linear", agent.policy.action_net)
        head.weight.mul_(0.01)
        head.bias.copy_(torch.tensor([3.0, 0.0, 0.0, 0.0]))
    return agent.learn(steps)


def above_the_best(recording: Path, agent: PPO | None) -> float:
    """Percent above the best; of ski rental without an agent."""
    env = TierUpEnv(recording)
    observation, info = env.reset(seed=0)
    while agent is not None:
        action, _ = agent.predict(observation, deterministic=True)
        observation, _, over, _, info = env.step(action)
        if over:
            return 100 * float(info["seconds"] / info["oracle_seconds"] - 1)
    return 100 * float(info["baseline_seconds"] / info["oracle_seconds"] - 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--train", nargs="+", type=Path, default=[SAMPLE_RECORDING])
    parser.add_argument("--test", nargs="+", type=Path, default=[SAMPLE_RECORDING])
    parser.add_argument("--steps", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    agent = trained(options.train, options.steps, options.seed)
    for split in ("train", "test"):
        ratios = []
        for path in getattr(options, split):
            rented, learned = above_the_best(path, None), above_the_best(path, agent)
            ratios.append((1 + rented / 100, 1 + learned / 100))
            print(f"{split} {path.stem}: ski rental {rented:.1f} %, PPO {learned:.1f} %")
        means = 100 * (np.exp(np.log(ratios).mean(axis=0)) - 1)
        print(f"{split}: mean (geometric) {means[0]:.1f} %, {means[1]:.1f} %")


if __name__ == "__main__":
    main()

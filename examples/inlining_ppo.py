"""PPO in one file, with PyTorch alone: an agent that learns to inline, and its learning curve.

Run by itself, it learns from the sample corpus for a few seconds. Worth looking at are corpora and
an hour::

    python inlining_ppo.py --corpus corpora --unseen unseen --minutes 60 --curve seed-0.csv

``pip install torch`` brings what it needs. Three things matter more here than PPO's settings:

- `PerDecisionReward` says what each answer changed, by a fork that LLVM answers to its end.
- The policy starts as LLVM's own rule, and is unsure only near the rule's threshold. A policy that
  starts by chance makes code twice as large.
- Rewards are squeezed: one bad answer can double a module, a good one saves a few bytes.
"""

from __future__ import annotations

import argparse
import csv
import time
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium.vector import AsyncVectorEnv, AutoresetMode
from torch import nn

from mlgo_gym import SAMPLE_CORPUS, Corpus, InliningForSize
from mlgo_gym.corpus import Packages
from mlgo_gym.envs import FloatVectorObservation, PerDecisionReward, SignedLogObservation
from mlgo_gym.rollout import rollout

PROBLEM = InliningForSize(derived=True)
NAMES = [each.spec.name for each in PROBLEM.features]
COST = NAMES.index("cost_estimate")
THRESHOLD, WIDTH = 5, 8  # LLVM's rule at -Oz inlines what costs less than 5
STEPS, ENVS, EPOCHS, MINIBATCH = 128, 4, 8, 128
CLIP, ENTROPY, LEARNING_RATE, SQUEEZE = 0.2, 0.001, 1e-3, 0.005


class Agent(nn.Module):
    """Logits of "leave" and "inline", and a value, over signed logarithms of the features."""

    def __init__(self) -> None:
        super().__init__()
        self.mean = nn.Parameter(torch.zeros(len(NAMES)), requires_grad=False)
        self.deviation = nn.Parameter(torch.ones(len(NAMES)), requires_grad=False)
        self.policy, self.value = network(2), network(1)
        last: Any = self.policy[-1]
        nn.init.normal_(last.weight, std=0.001)
        nn.init.zeros_(last.bias)

    def forward(self, features: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """LLVM's rule and what was learned, and how good the state is."""
        scaled = ((features - self.mean) / self.deviation).clamp(-5, 5)
        cost = features[..., COST]
        cost = torch.sign(cost) * torch.expm1(torch.abs(cost))
        rule = ((THRESHOLD - 0.5 - cost) / WIDTH).clamp(-4, 4) / 2
        logits = self.policy(scaled) + torch.stack([-rule, rule], dim=-1)
        return logits, self.value(scaled)[..., 0]

    def look_at(self, features: np.ndarray) -> None:
        """Scale features by what has been seen of them."""
        self.mean.copy_(torch.tensor(features.mean(axis=0)))
        self.deviation.copy_(torch.tensor(features.std(axis=0)) + 1e-3)

    def answer(self, observation: Any) -> int:
        """The likelier answer: a policy for `rollout` and `evaluate`."""
        values = np.concatenate([np.ravel(observation[name]) for name in NAMES]).astype(np.float32)
        with torch.no_grad():
            logits, _ = self(torch.tensor(np.sign(values) * np.log1p(np.abs(values))))
        return int(logits.argmax())


def network(outputs: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(len(NAMES), 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, outputs)
    )


def choices(logits: torch.Tensor) -> Any:
    return torch.distributions.Categorical(logits=logits)


def make(folder: Path | None, most_bytes: int) -> gymnasium.Env[Any, Any]:
    env: Any = gymnasium.make(
        "mlgo_gym:mlgo_gym/InliningForSize-v0",
        corpus=modules(folder, most_bytes),
        derived=True,
        decision_limit=200,
    )
    return FloatVectorObservation(SignedLogObservation(PerDecisionReward(env)))


def modules(folder: Path | None, most_bytes: int) -> Packages:
    """The modules of a folder of corpora whose bitcode is small: their episodes are short."""
    packages = Packages.of({"sample": Corpus.load(SAMPLE_CORPUS)} if folder is None else folder)
    return packages.only(key for key in packages if packages.size_bytes(key) <= most_bytes)


def mean_reward(agent: Agent, unseen: Packages) -> float:
    """The mean over modules of the share of LLVM's code that the likelier answers save."""
    rewards = []
    for report in rollout(unseen, {"agent": agent.answer}, PROBLEM, jobs=2):
        reward = report.reward(report.attempts[0])
        if reward is not None:
            rewards.append(reward)
    return float(np.mean(rewards))


def learn(
    agent: Agent,
    optimizer: torch.optim.Optimizer,
    features: torch.Tensor,
    actions: torch.Tensor,
    rewards: torch.Tensor,
) -> None:
    """One update of PPO. Each decision is worth its own reward, so nothing is discounted."""
    with torch.no_grad():
        logits, values = agent(features)
        old = choices(logits).log_prob(actions)
        advantages = rewards - values
        advantages = (advantages / (advantages.std() + 1e-8)).clamp(-4, 4)
    for _ in range(EPOCHS):
        for rows in torch.split(torch.randperm(len(actions)), MINIBATCH):
            logits, values = agent(features[rows])
            now = choices(logits)
            ratio = (now.log_prob(actions[rows]) - old[rows]).exp()
            gain = torch.min(
                ratio * advantages[rows], ratio.clamp(1 - CLIP, 1 + CLIP) * advantages[rows]
            )
            loss = nn.functional.smooth_l1_loss(values, rewards[rows]) / 2 - gain.mean()
            loss -= ENTROPY * now.entropy().mean()
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
            optimizer.step()


def train(options: argparse.Namespace) -> list[tuple[int, float]]:
    """Return the learning curve: how many decisions, and the mean reward on unseen modules."""
    torch.manual_seed(options.seed)
    agent = Agent()
    optimizer = torch.optim.Adam(agent.parameters(), LEARNING_RATE)
    unseen = modules(options.unseen, options.most_bytes)
    envs = AsyncVectorEnv(
        [partial(make, options.corpus, options.most_bytes)] * ENVS,
        autoreset_mode=AutoresetMode.SAME_STEP,
    )
    features, _ = envs.reset(seed=options.seed * 1000)
    curve, spent, update = [(0, mean_reward(agent, unseen))], 0.0, 0
    looks = np.linspace(0, 60 * options.minutes, options.looks + 1)[1:]
    while len(curve) <= options.looks:
        began = time.monotonic()
        optimizer.param_groups[0]["lr"] = LEARNING_RATE * max(0.05, 1 - spent / looks[-1])
        steps = []
        for _ in range(STEPS):
            with torch.no_grad():
                logits, _ = agent(torch.tensor(features))
            actions = choices(logits).sample().numpy()
            after, rewards, *_ = envs.step(actions)
            squeezed = np.tanh(rewards / SQUEEZE).astype(np.float32)
            steps.append((features, actions, squeezed))
            features = after
        seen, answers, values = map(np.concatenate, zip(*steps, strict=True))
        if update == 0:
            agent.look_at(seen)
        learn(agent, optimizer, *map(torch.tensor, (seen, answers, values)))
        update += 1
        spent += time.monotonic() - began
        if spent >= looks[len(curve) - 1]:
            curve.append((update * STEPS * ENVS, mean_reward(agent, unseen)))
            print(f"{curve[-1][0]:,} decisions: mean reward {curve[-1][1]:+.4f}", flush=True)
    envs.close()
    return curve


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--corpus", type=Path, help="a folder of corpora to learn from")
    parser.add_argument("--unseen", type=Path, help="a folder of corpora for the curve")
    parser.add_argument("--minutes", type=float, default=0.1)
    parser.add_argument("--looks", type=int, default=1, help="points of the curve")
    parser.add_argument("--most-bytes", type=int, default=100_000, help="of a module's bitcode")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--curve", type=Path, help="where the curve goes, as CSV")
    options = parser.parse_args()
    curve = train(options)
    if options.curve:
        with options.curve.open("w", newline="") as file:
            csv.writer(file).writerows([("decisions", "reward"), *curve])


if __name__ == "__main__":
    main()

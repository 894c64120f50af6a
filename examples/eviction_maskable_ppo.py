"""MaskablePPO of sb3-contrib, which learns what to evict from LLVM's registers; a model of it.

Run by itself, it learns from the sample corpus for a few seconds. Worth looking at are corpora and
some minutes::

    python eviction_maskable_ppo.py --corpus corpora --decisions 40960 --seed 0 --model model

``pip install sb3-contrib`` brings what it needs. An agent that starts by chance spills much more
than LLVM, and does not come back. This one learns as inlining_ppo.py does:

- It starts as LLVM's own rule, as far as the features tell it: evict the lightest of what is
  lighter than the live range that asks. A small network, the same for all positions, adds to it.
- `PerDecisionReward` says what each answer changed, by a fork that the rule answers to its end, and
  rewards are squeezed.
- What is heavier than the live range that asks is never evicted, unless something must be. Such
  evictions look good one by one, and together go round in circles.
"""

from __future__ import annotations

import argparse
import csv
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import torch
import torch._dynamo  # loads Triton, which takes no TensorFlow before it
from inlining_ppo import squeezed
from inlining_sb3_ppo import WithoutLayers
from sb3_contrib import MaskablePPO
from sb3_contrib.common.maskable.policies import MaskableActorCriticPolicy
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.vec_env import SubprocVecEnv
from torch import nn

from mlgo_gym import SAMPLE_CORPUS, Corpus, RegallocEviction
from mlgo_gym.corpus import Packages
from mlgo_gym.envs import FloatVectorObservation, PerDecisionReward, observed
from mlgo_gym.rollout import AllocationResult, rollout
from mlgo_gym.training import export_torch

PROBLEM = RegallocEviction()
POSITIONS = 33
ASKING = POSITIONS - 1  # the position of the live range that asks
STARTS: dict[str, int] = {}  # where each feature's numbers begin in the vector
NUMBERS = 0
for each in PROBLEM.layout.features:
    STARTS[each.spec.name] = NUMBERS
    NUMBERS += each.spec.element_count
WIDE = [name for name in STARTS if name not in ("mask", "progress")]
SURE = 1.5  # how much likelier, in log-odds, LLVM's choice starts than another one
STEPS, ENVS, EPOCHS, MINIBATCH = 512, 4, 8, 256
CLIP, ENTROPY, LEARNING_RATE, SQUEEZE = 0.2, 0.0, 1e-3, 0.05


class Agent(nn.Module):
    """Logits of the 33 positions, which start as LLVM's rule, and a value."""

    latent_dim_pi, latent_dim_vf = POSITIONS, 1  # what stable-baselines3 asks

    def __init__(self) -> None:
        super().__init__()
        self.mean = nn.Parameter(torch.zeros(len(WIDE)), requires_grad=False)
        self.deviation = nn.Parameter(torch.ones(len(WIDE)), requires_grad=False)
        self.scores, self.value = network(2 * len(WIDE) + 1), network(len(WIDE) + 1)
        is_asking = torch.zeros(1, POSITIONS, 1)
        is_asking[:, ASKING] = 1
        self.is_asking = nn.Parameter(is_asking, requires_grad=False)

    def forward(self, features: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The logits, and how good the state is."""
        return self.forward_actor(features), self.forward_critic(features)

    def forward_actor(self, features: torch.Tensor) -> torch.Tensor:
        """LLVM's rule and what was learned; what is never chosen has -1e4."""
        scaled = self.scaled(features)
        asking = scaled[:, ASKING:]
        flags = 0 * scaled[:, :, :1] + self.is_asking
        learned = self.scores(torch.cat([scaled, scaled - asking, flags], dim=-1))[:, :, 0]
        mask, weight = part(features, "mask"), part(features, "use_def_density")
        lighter = (weight < weight[:, ASKING:]).float()
        is_asking = self.is_asking[:, :, 0]
        must_evict = 1 - mask[:, ASKING:]
        allowed = mask * (lighter + is_asking + must_evict).clamp(0, 1)
        rule = 6 * lighter - 4 * part(features, "nr_broken_hints") - weight
        rule = rule * (1 - is_asking) + 0.01 * is_asking
        choice = torch.softmax(1000 * (rule - 100 * (1 - allowed)), dim=-1)
        logits: torch.Tensor = (learned + SURE * choice) * allowed - 1e4 * (1 - allowed)
        return logits

    def forward_critic(self, features: torch.Tensor) -> torch.Tensor:
        """How good the state is, by the live range that asks."""
        asking = self.scaled(features)[:, ASKING]
        value: torch.Tensor = self.value(torch.cat([asking, part(features, "progress")], dim=-1))
        return value

    def scaled(self, features: torch.Tensor) -> torch.Tensor:
        """The features by position: ``[batch, 33, features]``."""
        return ((by_position(features) - self.mean) / self.deviation).clamp(-5, 5)

    def look_at(self, features: torch.Tensor) -> None:
        """Scale features by what has been seen of them, at positions that may be chosen."""
        seen = by_position(features)[part(features, "mask") > 0]
        self.mean.copy_(seen.mean(dim=0))
        self.deviation.copy_(seen.std(dim=0) + 1e-2)

    def answer(self, observation: Any) -> int:
        """The likeliest answer to an observation of the environment."""
        vector = np.concatenate(list(observation.values()), axis=None, dtype=np.float32)
        with torch.no_grad():
            return int(self.forward_actor(torch.tensor(vector[None])).argmax())


class Actor(nn.Module):
    """The logits alone, for the model."""

    def __init__(self, agent: Agent) -> None:
        super().__init__()
        self.agent = agent

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        """The logits of the 33 positions."""
        return self.agent.forward_actor(features)


class AgentPolicy(WithoutLayers, MaskableActorCriticPolicy):
    """The agent as a policy of sb3-contrib."""

    networks = Agent


class Curve(BaseCallback):
    """The mean reward on unseen functions, as often as was asked."""

    def __init__(self, unseen: Packages, decisions: int, looks: int) -> None:
        super().__init__()
        self.unseen, self.between = unseen, max(1, decisions // looks)
        self.points: list[tuple[int, float]] = []

    def _on_step(self) -> bool:
        return True

    def _on_rollout_start(self) -> None:
        if self.num_timesteps >= self.between * len(self.points):
            self.look()

    def look(self) -> None:
        """Add a point."""
        policy: Any = self.model.policy
        reward = mean_reward(policy.mlp_extractor, self.unseen)
        self.points.append((self.num_timesteps, reward))
        print(f"{self.num_timesteps:,} decisions: mean reward {reward:+.4f}", flush=True)


def part(features: torch.Tensor, name: str) -> torch.Tensor:
    start = STARTS[name]
    return features[:, start : start + (1 if name == "progress" else POSITIONS)]


def by_position(features: torch.Tensor) -> torch.Tensor:
    return torch.stack([part(features, name) for name in WIDE], dim=-1)


def network(inputs: int) -> nn.Sequential:
    last = nn.Linear(32, 1)
    nn.init.normal_(last.weight, std=0.001)
    nn.init.zeros_(last.bias)
    return nn.Sequential(nn.Linear(inputs, 64), nn.Tanh(), nn.Linear(64, 32), nn.Tanh(), last)


def make(folder: Path | None) -> gymnasium.Env[Any, Any]:
    torch.set_num_threads(1)
    env: Any = gymnasium.make(
        "mlgo_gym:mlgo_gym/RegallocEviction-v0", corpus=modules(folder), decision_limit=1000
    )
    return squeezed(FloatVectorObservation(PerDecisionReward(env, Agent().answer)), SQUEEZE)


def modules(folder: Path | None) -> Packages:
    return Packages.of({"sample": Corpus.load(SAMPLE_CORPUS)} if folder is None else folder)


def mean_reward(agent: Agent, unseen: Packages) -> float:
    """The mean over functions that ask of the share of LLVM's score that the answers save."""
    rewards = []

    def policy(observation: Any) -> int:
        return agent.answer(observed(PROBLEM, observation))

    for report in rollout(unseen, {"agent": policy}, PROBLEM, jobs=2):
        plain, found = report.baseline, report.attempts[0].result if report.attempts else None
        if isinstance(plain, AllocationResult) and isinstance(found, AllocationResult):
            rewards += [
                1 - found.scores[name].value / plain.scores[name].value
                for name in found.asked
                if plain.scores[name].value > 0
            ]
    return float(np.mean(rewards))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--corpus", type=Path, help="a folder of corpora to learn from")
    parser.add_argument("--unseen", type=Path, help="a folder of corpora for the curve")
    parser.add_argument("--decisions", type=int, default=256)
    parser.add_argument("--looks", type=int, default=1, help="points of the curve")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--curve", type=Path, help="where the curve goes, as CSV")
    parser.add_argument("--model", type=Path, help="where the model goes")
    options = parser.parse_args()
    torch.set_num_threads(1)  # the network is small, and compilers need the others
    steps = min(STEPS, options.decisions // ENVS)
    envs = SubprocVecEnv([partial(make, options.corpus)] * ENVS)
    model = MaskablePPO(
        AgentPolicy,
        envs,
        learning_rate=lambda left: LEARNING_RATE * max(0.05, left),
        n_steps=steps,
        batch_size=MINIBATCH,
        n_epochs=EPOCHS,
        gamma=0.0,  # each decision is worth its own reward
        clip_range=CLIP,
        ent_coef=ENTROPY,
        seed=options.seed,
        device="cpu",
    )
    policy: Any = model.policy
    agent: Agent = policy.mlp_extractor
    envs.seed(options.seed * 1000)
    seen: list[Any] = [envs.reset()]
    for _ in range(steps - 1):
        with torch.no_grad():
            logits = agent.forward_actor(torch.tensor(seen[-1]))
        seen.append(envs.step(logits.argmax(dim=-1).numpy())[0])
    agent.look_at(torch.tensor(np.concatenate(seen)))
    curve = Curve(modules(options.unseen), options.decisions, options.looks)
    model.learn(options.decisions, callback=curve)
    curve.look()
    envs.close()
    if options.curve:
        with options.curve.open("w", newline="") as file:
            csv.writer(file).writerows([("decisions", "reward"), *curve.points])
    if options.model:
        export_torch(Actor(agent), PROBLEM, options.model)


if __name__ == "__main__":
    main()

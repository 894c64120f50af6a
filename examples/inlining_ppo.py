"""PPO in one file, with PyTorch alone: agents that learn to inline, and a model of them for LLVM.

Run by itself, it learns from the sample corpus for a few seconds. Worth looking at are corpora,
some minutes, and several agents::

    python inlining_ppo.py --corpus corpora --decisions 32768 --seed 0 --agent agent-0.pt
    python inlining_ppo.py --corpus corpora --decisions 32768 --seed 1 --agent agent-1.pt
    python inlining_ppo.py --join agent-0.pt agent-1.pt --model model

``pip install torch`` brings what it needs. Four things matter more here than PPO's settings:

- `PerDecisionReward` says what each answer changed, by a fork that LLVM answers to its end.
- The policy starts as LLVM's own rule, and is unsure only near the rule's threshold. A policy that
  starts by chance makes code twice as large; one with a bias against inlining learns, too
  (``--from-scratch``).
- Rewards are squeezed: one bad answer can double a module, a good one saves a few bytes.
- Agents answer together, and only within a band of costs: what one has got wrong, others outvote,
  and of calls far from the threshold none has seen enough.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Sequence
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
from mlgo_gym.training import VectorNormalization, export_torch

PROBLEM = InliningForSize(derived=True)
NAMES = PROBLEM.layout.feature_names
COST = NAMES.index("cost_estimate")
THRESHOLD, WIDTH = 5, 8  # LLVM's rule at -Oz inlines what costs less than 5
AGAINST = 1.5  # how much more likely "leave" starts than "inline", in log-odds, without the rule
BAND = (-25, 120)  # below and from there on, LLVM's rule answers
STEPS, ENVS, EPOCHS, MINIBATCH = 128, 4, 8, 128
CLIP, ENTROPY, LEARNING_RATE, SQUEEZE = 0.2, 0.001, 1e-3, 0.005


class Agent(nn.Module):
    """Logits of "leave" and "inline", and a value, over signed logarithms of the features.

    They start as LLVM's rule; or, from scratch, with a bias against inlining alone.
    """

    def __init__(self, *, from_scratch: bool = False) -> None:
        super().__init__()
        self.mean = nn.Parameter(torch.zeros(len(NAMES)), requires_grad=False)
        self.deviation = nn.Parameter(torch.ones(len(NAMES)), requires_grad=False)
        self.policy, self.value = network(2), network(1)
        last: Any = self.policy[-1]
        nn.init.normal_(last.weight, std=0.001)
        nn.init.zeros_(last.bias)
        self.weight_of_rule = nn.Parameter(torch.ones(()), requires_grad=False)
        if from_scratch:
            nn.init.zeros_(self.weight_of_rule)
            last.bias.data = torch.tensor([AGAINST / 2, -AGAINST / 2])

    def forward(self, features: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """LLVM's rule and what was learned, and how good the state is."""
        scaled = ((features - self.mean) / self.deviation).clamp(-5, 5)
        rule = ((THRESHOLD - 0.5 - cost_of(features)) / WIDTH).clamp(-4, 4) / 2
        logits = self.policy(scaled) + self.weight_of_rule * torch.stack([-rule, rule], dim=-1)
        return logits, self.value(scaled)[..., 0]

    def look_at(self, features: np.ndarray) -> None:
        """Scale features by what has been seen of them."""
        self.mean.copy_(torch.tensor(features.mean(axis=0)))
        self.deviation.copy_(torch.tensor(features.std(axis=0)) + 1e-3)


class Committee(nn.Module):
    """The mean of agents' logits within a band of costs, and LLVM's rule outside."""

    def __init__(self, agents: Sequence[Agent]) -> None:
        super().__init__()
        self.agents = nn.ModuleList(agents)

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        """The logits of "leave" and "inline"."""
        logits = torch.stack([agent(features)[0] for agent in self.agents]).mean(dim=0)
        cost = cost_of(features)[..., None] + 0.5  # costs are whole numbers
        rule = torch.sign(THRESHOLD - cost)
        within = (cost > BAND[0]) & (cost < BAND[1])
        return torch.where(within, logits, torch.cat([-rule, rule], dim=-1))

    def answer(self, observation: Any) -> int:
        """The likelier answer: a policy for `rollout` and `evaluate`."""
        values = np.concatenate([np.ravel(observation[name]) for name in NAMES]).astype(np.float32)
        with torch.no_grad():
            logits = self(torch.tensor(np.sign(values) * np.log1p(np.abs(values))))
        return int(logits.argmax())


def cost_of(features: torch.Tensor) -> torch.Tensor:
    """LLVM's estimate of a call's cost, of which the features have the signed logarithm."""
    logarithm = features[..., COST]
    return torch.sign(logarithm) * torch.expm1(torch.abs(logarithm))


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
    return squeezed(FloatVectorObservation(SignedLogObservation(PerDecisionReward(env))), SQUEEZE)


def squeezed(env: gymnasium.Env[Any, Any], scale: float) -> gymnasium.Env[Any, Any]:
    """An environment whose rewards are small numbers."""
    return gymnasium.wrappers.TransformReward(
        env, lambda reward: float(np.tanh(float(reward) / scale))
    )


def modules(folder: Path | None, most_bytes: int) -> Packages:
    """The modules of a folder of corpora whose bitcode is small: their episodes are short."""
    packages = Packages.of({"sample": Corpus.load(SAMPLE_CORPUS)} if folder is None else folder)
    return packages.only(key for key in packages if packages.size_bytes(key) <= most_bytes)


def mean_reward(agent: Agent, unseen: Packages) -> float:
    """The mean over modules of the share of LLVM's code that the likelier answers save."""
    rewards = []
    for report in rollout(unseen, {"agent": Committee([agent]).answer}, PROBLEM, jobs=2):
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


def train(options: argparse.Namespace) -> tuple[Agent, list[tuple[int, float]]]:
    """Return the agent, and its learning curve: decisions, and mean reward on unseen modules."""
    torch.manual_seed(options.seed)
    agent = Agent(from_scratch=options.from_scratch)
    optimizer = torch.optim.Adam(agent.parameters(), LEARNING_RATE)
    unseen = modules(options.unseen, options.most_bytes)
    envs = AsyncVectorEnv(
        [partial(make, options.corpus, options.most_bytes)] * ENVS,
        autoreset_mode=AutoresetMode.SAME_STEP,
    )
    features, _ = envs.reset(seed=options.seed * 1000)
    curve = [(0, mean_reward(agent, unseen))]
    updates = max(1, options.decisions // (STEPS * ENVS))
    for update in range(updates):
        optimizer.param_groups[0]["lr"] = LEARNING_RATE * max(0.05, 1 - update / updates)
        steps = []
        for _ in range(STEPS):
            with torch.no_grad():
                logits, _ = agent(torch.tensor(features))
            actions = choices(logits).sample().numpy()
            after, rewards, *_ = envs.step(actions)
            steps.append((features, actions, rewards.astype(np.float32)))
            features = after
        seen, answers, values = map(np.concatenate, zip(*steps, strict=True))
        if update == 0:
            agent.look_at(seen)
        learn(agent, optimizer, *map(torch.tensor, (seen, answers, values)))
        if update + 1 >= updates * len(curve) / options.looks:
            curve.append(((update + 1) * STEPS * ENVS, mean_reward(agent, unseen)))
            print(f"{curve[-1][0]:,} decisions: mean reward {curve[-1][1]:+.4f}", flush=True)
    envs.close()
    return agent, curve


def export(paths: Sequence[Path], folder: Path) -> None:
    """Write the agents of these files as one model, which LLVM takes without PyTorch."""
    agents = []
    for path in paths:
        agent = Agent()
        agent.load_state_dict(torch.load(path))
        agents.append(agent)
    normalization = VectorNormalization(signed_log=True)
    export_torch(Committee(agents), PROBLEM, folder, normalization=normalization)


def parser_of_training(about: str | None) -> argparse.ArgumentParser:
    """The options that all of the PPO examples for the inliner have."""
    parser = argparse.ArgumentParser(description=about.splitlines()[0] if about else None)
    parser.add_argument("--corpus", type=Path, help="a folder of corpora to learn from")
    parser.add_argument("--unseen", type=Path, help="a folder of corpora to look at")
    parser.add_argument("--decisions", type=int, default=STEPS * ENVS)
    parser.add_argument("--most-bytes", type=int, default=100_000, help="of a module's bitcode")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--agent", type=Path, help="where the agent goes")
    return parser


def keep(agent: Agent, decisions: int, options: argparse.Namespace) -> None:
    """Say what an agent is worth after so many decisions, and keep it where that is asked."""
    reward = mean_reward(agent, modules(options.unseen, options.most_bytes))
    print(f"{decisions:,} decisions: mean reward {reward:+.4f}")
    if options.agent:
        torch.save(agent.state_dict(), options.agent)


def main() -> None:
    parser = parser_of_training(__doc__)
    parser.add_argument("--looks", type=int, default=1, help="points of the curve")
    parser.add_argument("--from-scratch", action="store_true", help="without LLVM's rule")
    parser.add_argument("--curve", type=Path, help="where the curve goes, as CSV")
    parser.add_argument("--join", type=Path, nargs="+", help="agents, to write as one model")
    parser.add_argument("--model", type=Path, help="where that goes")
    options = parser.parse_args()
    torch.set_num_threads(1)  # the network is small, and compilers need the others
    if options.join:
        export(options.join, options.model)
        return
    agent, curve = train(options)
    if options.curve:
        with options.curve.open("w", newline="") as file:
            csv.writer(file).writerows([("decisions", "reward"), *curve])
    if options.agent:
        torch.save(agent.state_dict(), options.agent)


if __name__ == "__main__":
    main()

"""The agents of inlining_ppo.py, learned offline: IQL of TorchRL on a data set of Minari.

The first agent records the data set; the others learn from it without LLVM::

    python inlining_torchrl_iql.py --corpus corpora --decisions 32768 --seed 0 --agent agent-0.pt
    python inlining_torchrl_iql.py --seed 1 --agent agent-1.pt
    python inlining_ppo.py --join agent-0.pt agent-1.pt --model model

``pip install torchrl 'mlgo-gym[minari]'`` brings what it needs. What is recorded are the answers of
an agent that has learned nothing: LLVM's rule, unsure near its threshold. IQL imitates them, and
those most that turned out well. Agents learned so have not beaten LLVM on other modules yet:
docs/results/training.md has numbers.
"""

from __future__ import annotations

import warnings
from typing import Any

import gymnasium
import minari
import torch
from inlining_ppo import (
    LEARNING_RATE,
    Agent,
    choices,
    keep,
    make,
    network,
    parser_of_training,
)
from inlining_torchrl_ppo import Part
from minari.data_collector import EpisodeBuffer
from tensordict.nn import TensorDictModule
from torch import nn
from torchrl.data.datasets import MinariExperienceReplay
from torchrl.modules import ProbabilisticActor
from torchrl.objectives import DiscreteIQLLoss

PASSES, BATCH = 20, 256
TEMPERATURE = 3.0  # a higher one imitates more of the good answers alone


def record(name: str, agent: Agent, decisions: int, env: gymnasium.Env[Any, Any]) -> None:
    """Keep an agent's sampled answers, with what each was worth, as a data set."""
    episodes: list[EpisodeBuffer] = []
    total = 0
    while total < decisions:
        observation, _ = env.reset(seed=None if episodes else torch.initial_seed())
        observations, actions, rewards, is_over, terminated = [observation], [], [], False, False
        while not is_over:
            with torch.no_grad():
                logits, _ = agent(torch.tensor(observation))
            actions.append(int(choices(logits).sample()))
            observation, reward, terminated, truncated, _ = env.step(actions[-1])
            observations.append(observation)
            rewards.append(float(reward))
            is_over = terminated or truncated
        total += len(actions)
        before = [False] * (len(actions) - 1)
        episodes.append(
            EpisodeBuffer(
                observations=observations,
                actions=actions,
                rewards=rewards,
                terminations=[*before, terminated],
                truncations=[*before, not terminated],
            )
        )
    minari.create_dataset_from_buffers(
        name, episodes, env, algorithm_name="LLVM's rule, unsure near its threshold"
    )
    print(f"{total:,} decisions of {len(episodes):,} episodes in {name}")


def main() -> None:
    parser = parser_of_training(__doc__)
    parser.add_argument(
        "--set", default="inlining/unsure-v0", help="the data set, recorded where there is none"
    )
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(options.seed)
    warnings.simplefilter("ignore")  # of how TorchRL will be in its next version
    agent = Agent()
    if options.set not in minari.list_local_datasets():
        with make(options.corpus, options.most_bytes) as env:
            record(options.set, agent, options.decisions, env)
    data = MinariExperienceReplay(options.set, BATCH, load_from_local_minari=True)
    agent.look_at(data[:]["observation"].numpy())
    actor = ProbabilisticActor(
        TensorDictModule(Part(agent, 0), ["observation"], ["logits"]),
        in_keys=["logits"],
        distribution_class=torch.distributions.Categorical,
    )
    quality = TensorDictModule(network(2), ["observation"], ["state_action_value"])
    value = TensorDictModule(Part(agent, 1), ["observation"], ["state_value"])
    loss = DiscreteIQLLoss(
        actor, quality, value, action_space="categorical", temperature=TEMPERATURE, expectile=0.5
    )
    loss.make_value_estimator(gamma=0.0)  # each decision has its own reward
    optimizer = torch.optim.Adam(loss.parameters(), LEARNING_RATE)
    steps = PASSES * len(data) // BATCH
    for step in range(steps):
        optimizer.param_groups[0]["lr"] = LEARNING_RATE * max(0.05, 1 - step / steps)
        terms = loss(data.sample())
        total = terms["loss_actor"] + terms["loss_qvalue"] + terms["loss_value"]
        optimizer.zero_grad()
        total.backward()
        nn.utils.clip_grad_norm_(loss.parameters(), 0.5)
        optimizer.step()
    keep(agent, len(data), options)


if __name__ == "__main__":
    main()

"""The settings of PPO, and those of ml-compiler-opt."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from mlgo_gym.errors import OptionsError


@dataclass(frozen=True, slots=True)
class Config:
    """How PPO learns.

    Attributes:
        seed: of weights, modules, actions and minibatches.
        iterations: how many there are at most.
        modules: how many are compiled in each iteration.
        hidden: the widths of the network's hidden layers, and of the critic's.
        band: the inline costs, from the first to below the second, between which the inliner's
            network may answer otherwise than LLVM's default; empty is everywhere.
        discount: what a reward is worth a step earlier.
        decay: GAE's lambda.
        reward_every_step: the episode's reward is given at every step, not at the last alone.
        reward_limit: rewards are clipped to this size; ``None`` leaves them.
        moving_average: the share of the old value in the average of a module's own past, which
            its rewards are measured against, so that easy modules do not drown what was done in
            them; with 1 it stays the baseline.
        value_weight: of the critic's squared error in the loss; 0 is no critic.
        epochs: how often an iteration's decisions are learned from.
        gradient_steps: this many minibatches in each iteration, whatever ``epochs`` says.
        minibatch: decisions in a gradient step.
        learning_rate: Adam's.
        adam_epsilon: Adam's.
        clip: how far from 1 the ratio of new to old probability still counts.
        entropy: weight of the entropy in the loss, which keeps the policy trying.
        l2: weight of the actor's squared kernels in the loss.
        gradient_norm: gradients are scaled down to this norm; ``None`` leaves them.
        kl_target: adapts a penalty so that the divergence from the old policy stays near it, and
            adds a steep one above twice as much; ``None`` has no penalty.
        validate_every: iterations between two validations, which choose the best model.
        start: a model directory of ours that training starts from; empty starts at LLVM's own
            rule.

    Raises:
        OptionsError: a number is out of its range.
    """

    seed: int = 0
    iterations: int = 1000
    modules: int = 32
    hidden: tuple[int, ...] = (64, 64)
    band: tuple[int, ...] = (-25, 120)
    discount: float = 1.0
    decay: float = 0.99
    reward_every_step: bool = False
    reward_limit: float | None = 1.0
    moving_average: float = 0.8
    value_weight: float = 0.5
    epochs: int = 4
    gradient_steps: int | None = None
    minibatch: int = 256
    learning_rate: float = 1e-3
    adam_epsilon: float = 1e-5
    clip: float = 0.2
    entropy: float = 0.003
    l2: float = 0.0
    gradient_norm: float | None = 0.5
    kl_target: float | None = None
    validate_every: int = 10
    start: str = ""

    def __post_init__(self) -> None:
        for name in ("iterations", "modules", "epochs", "minibatch", "validate_every"):
            if getattr(self, name) < 1:
                raise OptionsError(
                    f"{name}: expected a number above 0, found {getattr(self, name)!r}"
                )
        for name in ("discount", "decay", "moving_average"):
            share = getattr(self, name)
            if not 0 <= share <= 1:
                raise OptionsError(f"{name}: expected a number from 0 to 1, found {share!r}")
        if len(self.band) not in {0, 2}:
            raise OptionsError(f"band: expected two costs or none, found {self.band!r}")


PPO_BANDIT: Final = Config(
    iterations=3000,
    modules=100,
    hidden=(40, 40, 20),
    band=(),
    discount=0.0,
    decay=0.0,
    reward_every_step=True,
    reward_limit=None,
    value_weight=0.0,
    gradient_steps=300,
    minibatch=4096,
    learning_rate=3e-5,
    adam_epsilon=3.125e-4,
    entropy=0.003,
    l2=1e-6,
    gradient_norm=None,
    kl_target=0.01,
)
"""The setting of ml-compiler-opt for the inliner: every decision is a bandit's.

Its numbers are those of ``compiler_opt/rl/inlining/gin_configs/ppo_nn_agent.gin`` (256 sequences of
16 decisions are a minibatch of 4,096): each decision of a module gets the module's reward, measured
against the module's moving average, with neither discount nor critic. The features' normalisation
and the network's starting point are those of `training._networks`.
"""

PRESETS: Final[Mapping[str, Config]] = MappingProxyType({"bandit": PPO_BANDIT})
"""Configurations that have a name."""

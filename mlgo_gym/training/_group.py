"""``group``: several tries at the same context, compared with each other.

In each generation some contexts are compiled, functions for register allocation and modules for the
inliner (`training._contexts`): once with the likeliest actions, and several times with a
few of them drawn from the network's probabilities instead. A try that came out better than the
others makes what it drew likelier (`training._group_update`). No critic is needed: the
other tries say what was to be expected (leave-one-out; Kool, van Hoof, Welling 2019). Since most
actions stay the likeliest, what is learned about a drawn one holds for the policy that is exported.

Contexts with more to save are drawn more often, and what is worse than LLVM by more than a limit
costs more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from time import monotonic
from typing import Annotated, Any, Final

import numpy as np

from mlgo_gym.problems import Problem
from mlgo_gym.training._data import Data
from mlgo_gym.training._generations import Generation, GenerationsConfig, train_in_generations
from mlgo_gym.training._group_update import PolicyGradient, UpdateConfig
from mlgo_gym.training._networks import PolicyNetwork
from mlgo_gym.training._ranges import Positive, Range
from mlgo_gym.training._run import TrainingRun
from mlgo_gym.training._trials import Trial, Trials, TrialSetting, Tried
from mlgo_gym.training._validation import Validation

_Array = np.ndarray[Any, Any]


@dataclass(frozen=True, kw_only=True)
class Config(GenerationsConfig):
    """The settings that decide the result; docs/guides/training.md explains each."""

    tries: Annotated[int, Range(2, 1 << 16)] = 16
    drawn: Positive = 8.0
    temperature: Positive = 1.7
    most_gain: Positive = 0.15
    most_loss: Positive = 0.5
    update: UpdateConfig = field(default_factory=UpdateConfig)

    def setting(self, generation: int) -> TrialSetting:
        """How contexts are tried in a generation."""
        tries, drawn = self.tries, self.drawn
        return TrialSetting(self.seed, generation, tries, drawn, self.temperature, self.tolerated)


def train(run: TrainingRun, config: Config, data: Data) -> Validation:
    """Train until the generations or the run's budget are over; goes on where the run was."""
    return train_in_generations(run, config, data, partial(_Learner, run.problem, config))


class _Learner:
    """Learns from tries that are compared with each other."""

    def __init__(self, problem: Problem, config: Config, network: PolicyNetwork) -> None:
        self.update: Final = PolicyGradient(network, problem, config.temperature, config.update)
        self._config = config

    def learn_from(self, generation: Generation) -> Mapping[str, float]:
        started = monotonic()
        setting = self._config.setting(generation.number)
        trials = generation.outcomes(Trials(generation.workshop, generation.network, setting))
        metrics = {"collect/seconds": monotonic() - started}
        return metrics | (self._compared(trials, generation.generator) if trials else {})

    def _compared(
        self, trials: Sequence[tuple[float, Trial]], generator: np.random.Generator
    ) -> dict[str, float]:
        tried: list[Tried] = []
        advantages: list[_Array] = []
        for weight, trial in trials:
            worth = advantages_of(trial, self._config)
            for decisions, advantage in zip(trial.tried, worth, strict=True):
                tried += decisions
                advantages.append(np.full(len(decisions), weight * advantage))
        metrics = {
            "cost/mean": float(np.mean([trial.cost for _, trial in trials])),
            "cost/worst": max(trial.cost for _, trial in trials),
            "collect/decisions": len(tried),
        }
        if tried:
            metrics |= self.update.learn(tried, np.concatenate(advantages), generator)
        return metrics


def advantages_of(trial: Trial, config: Config) -> _Array:
    """How much better each try was than the others, ``float [tries]``; positive is better.

    >>> trial = Trial(0.0, (-0.1, 0.1, 0.0), ((), (), ()))
    >>> [round(float(each), 3) for each in advantages_of(trial, Config())]
    [0.15, -0.15, 0.0]
    """
    if len(trial.costs) < 2:  # there are no others
        return np.zeros(len(trial.costs))
    losses = np.array(trial.costs) - trial.cost
    losses = np.clip(losses, -config.most_gain, config.most_loss)
    others = (losses.sum() - losses) / (len(losses) - 1)
    advantages: _Array = others - losses
    return advantages

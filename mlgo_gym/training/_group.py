"""``group``: several tries at the same context, compared with each other.

In each generation some contexts are compiled, functions for register allocation and modules for the
inliner (`training._data`): once with the likeliest actions, and several times with a
few of them drawn from the network's probabilities instead. A try that came out better than the
others makes what it drew likelier. No critic is needed: the other tries say what was to be expected
(leave-one-out; Kool, van Hoof, Welling 2019). Since most actions stay the likeliest, what is
learned about a drawn one holds for the policy that is exported.

The loss is the clipped objective of Schulman et al., "Proximal Policy Optimization Algorithms"
(2017), equation 7, on the decisions that were drawn. What is exported is a moving average of the
weights, which forgets the noise of single generations.

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
import tensorflow as tf

from mlgo_gym.problems import Problem
from mlgo_gym.training._data import Data
from mlgo_gym.training._generations import (
    Generation,
    GenerationsConfig,
    Update,
    train_in_generations,
)
from mlgo_gym.training._networks import PolicyNetwork
from mlgo_gym.training._run import TrainingRun
from mlgo_gym.training._train import Count, Part, Positive, Range, Ranged
from mlgo_gym.training._trials import Trial, Trials, TrialSetting, Tried
from mlgo_gym.training._validation import Validation

_Array = np.ndarray[Any, Any]

_LARGEST_ADVANTAGE: Final = 4.0
_LARGEST_LOG_RATIO: Final = 5.0


@dataclass(frozen=True)
class UpdateConfig(Ranged):
    """How a generation's decisions change the network; docs/guides/training.md has the settings."""

    epochs: Count = 4
    minibatch: Count = 256
    learning_rate: Positive = 2e-3
    clip: Positive = 0.2
    gradient_norm: Positive = 1.0
    average: Part = 0.8


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


class PolicyGradient(Update):
    """A network that learns from decisions and what they were worth."""

    def __init__(
        self, network: PolicyNetwork, problem: Problem, temperature: float, config: UpdateConfig
    ) -> None:
        super().__init__(network, config.learning_rate, kept=config.average)
        self._problem = problem
        self._temperature = temperature
        self._config = config
        self._step = tf.function(self._take_step, autograph=False, reduce_retracing=True)

    def learn(
        self, tried: Sequence[Tried], advantages: _Array, generator: np.random.Generator
    ) -> dict[str, float]:
        """Take a generation's gradient steps; advantages are ``float [N]``, in any unit."""
        layout = self._problem.layout
        features = layout.columns(layout.array(each.payload for each in tried))
        actions = np.array([each.action for each in tried], np.int64)
        old = np.array([each.log_probability for each in tried], np.float32)
        unit = advantages / (advantages.std() + 1e-9)
        unit = np.clip(unit, -_LARGEST_ADVANTAGE, _LARGEST_ADVANTAGE).astype(np.float32)
        sums: dict[str, float] = {}
        steps = 0
        for _ in range(self._config.epochs):
            order = generator.permutation(len(tried))
            for start in range(0, len(order), self._config.minibatch):
                chosen = order[start : start + self._config.minibatch]
                seen = {name: tf.constant(each[chosen]) for name, each in features.items()}
                batch = (tf.constant(each[chosen]) for each in (actions, old, unit))
                steps += 1
                for name, value in self._step(seen, *batch).items():
                    sums[name] = sums.get(name, 0.0) + float(value)
        self.take_average()
        return {name: value / steps for name, value in sums.items()}

    def _take_step(self, seen: Any, actions: Any, old: Any, advantages: Any) -> dict[str, Any]:
        config = self._config
        with tf.GradientTape() as tape:
            logits = self.network(seen) / self._temperature
            new = tf.gather(tf.nn.log_softmax(logits), actions, axis=1, batch_dims=1)
            change = tf.clip_by_value(new - old, -_LARGEST_LOG_RATIO, _LARGEST_LOG_RATIO)
            ratio = tf.exp(change)
            limited = tf.clip_by_value(ratio, 1 - config.clip, 1 + config.clip)
            loss = -tf.reduce_mean(tf.minimum(ratio * advantages, limited * advantages))
        gradients = tape.gradient(loss, self._variables)
        gradients, _ = tf.clip_by_global_norm(gradients, config.gradient_norm)
        self._optimizer.apply(gradients, self._variables)
        return {"policy/loss": loss, "policy/kl": -tf.reduce_mean(change)}

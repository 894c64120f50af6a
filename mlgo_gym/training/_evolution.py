"""``evolution``: networks a little beside the one that learns, compared with each other.

In each generation some contexts are compiled (`training._data`) with pairs of networks, whose
weights are the learner's plus and minus the same noise. The weights then move along the noise, by
how much less the code with the one network of a pair cost than with the other. This is the gradient
of evolution strategies with mirrored samples (Salimans et al., "Evolution Strategies as a Scalable
Alternative to Reinforcement Learning", 2017), which google/ml-compiler-opt trains by, too. It asks
for no gradient of a policy, no credit for single decisions and no randomness in answers: what is
compared is what is exported.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from time import monotonic
from typing import Annotated, Any, Final

import numpy as np
import tensorflow as tf

from mlgo_gym.training._data import Data
from mlgo_gym.training._generations import (
    Generation,
    GenerationsConfig,
    Update,
    train_in_generations,
)
from mlgo_gym.training._networks import PolicyNetwork
from mlgo_gym.training._run import TrainingRun
from mlgo_gym.training._train import Part, Positive, Range
from mlgo_gym.training._trials import Perturbation, Perturbed, noise
from mlgo_gym.training._validation import Validation

_Array = np.ndarray[Any, Any]


@dataclass(frozen=True, kw_only=True)
class Config(GenerationsConfig):
    """The settings that decide the result; docs/guides/training.md explains each."""

    pairs: Annotated[int, Range(1, 1 << 16)] = 8
    noise: Positive = 0.08
    learning_rate: Positive = 0.02
    average: Part = 0.8
    most_gain: Positive = 0.15
    most_loss: Positive = 0.5


def train(run: TrainingRun, config: Config, data: Data) -> Validation:
    """Train until the generations or the run's budget are over; goes on where the run was."""
    return train_in_generations(run, config, data, partial(_Learner, config))


class _Learner:
    """Learns from pairs of networks that are compared with each other."""

    def __init__(self, config: Config, network: PolicyNetwork) -> None:
        self.update: Final = Ascent(network, config.learning_rate, kept=config.average)
        self._config = config

    def learn_from(self, generation: Generation) -> Mapping[str, float]:
        started = monotonic()
        config = self._config
        perturbation = Perturbation(
            config.seed, generation.number, config.pairs, config.noise, config.tolerated
        )
        found = generation.outcomes(
            Perturbed(generation.workshop, generation.network, perturbation)
        )
        metrics = {"collect/seconds": monotonic() - started}
        if not found:
            return metrics
        costs = np.array([compared.costs for _, compared in found])
        weights = np.array([weight for weight, _ in found])
        worth = worth_of(costs, weights, config.most_gain, config.most_loss)
        self.update.learn(worth, perturbation)
        known = costs[np.isfinite(costs)]
        return metrics | {
            "cost/mean": float(known.mean()) if known.size else 0.0,
            "cost/worst": float(known.max()) if known.size else 0.0,
            "collect/differing": float((costs[..., 0] != costs[..., 1]).mean()),
        }


def worth_of(costs: _Array, weights: _Array, most_gain: float, most_loss: float) -> _Array:
    """How much better the first network of each pair was, ``float [pairs]``, in a unit of its own.

    Args:
        costs: of each context, ``float [contexts, pairs, 2]``; below 0 is better than LLVM.
        weights: how much each context counts, ``float [contexts]``.
        most_gain: a cost counts down to minus this,
        most_loss: and up to this.

    >>> costs = np.array([[[-0.1, 0.1], [0.0, 0.0]], [[0.0, 0.0], [0.1, 0.0]]])
    >>> worth_of(costs, np.ones(2), 0.15, 0.5).round(2).tolist()
    [1.26, -0.63]
    """
    limited = np.clip(costs, -most_gain, most_loss)
    saved = ((limited[..., 1] - limited[..., 0]) * weights[:, None]).mean(axis=0)
    unit = float(np.sqrt(np.mean(saved**2)))
    worth: _Array = saved / unit if unit else saved
    return worth


class Ascent(Update):
    """A network whose weights move along noise, by what that was worth."""

    def learn(self, worth: Sequence[float] | _Array, perturbation: Perturbation) -> None:
        """Take a generation's step; worth is ``float [pairs]``."""
        if not np.any(worth):
            return
        shapes = [tuple(each.shape) for each in self._variables]
        gradients = [np.zeros(shape, np.float32) for shape in shapes]
        for number, value in enumerate(worth):
            each = noise(perturbation, number, shapes)
            share = np.float32(value / len(worth))
            gradients = [old - share * new for old, new in zip(gradients, each, strict=True)]
        self._optimizer.apply([tf.constant(each) for each in gradients], self._variables)
        self.take_average()

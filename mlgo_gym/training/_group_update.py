"""The update of ``group``: the clipped policy gradient of what was tried.

The loss is the clipped objective of Schulman et al., "Proximal Policy Optimization Algorithms"
(2017), equation 7, on the decisions that were drawn. What is exported is a moving average of the
weights, which forgets the noise of single generations.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import tensorflow as tf

from mlgo_gym.problems import Problem
from mlgo_gym.training._generations import Update
from mlgo_gym.training._networks import PolicyNetwork
from mlgo_gym.training._ranges import Count, Part, Positive, Ranged
from mlgo_gym.training._trials import Tried

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

"""Fitting a network to targets: the supervised part that several trainers share."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import keras
import numpy as np
import tensorflow as tf

from mlgo_gym.errors import OptionsError
from mlgo_gym.training._networks import PolicyNetwork

_Array = np.ndarray[Any, Any]
_OfBatch = Callable[[Any, Mapping[str, Any]], Any]

_HUBER: Final = 1.0


@dataclass(frozen=True)
class FitConfig:
    """How a network is fitted.

    Attributes:
        epochs: how often all rows are gone through.
        batch_size: rows a step.
        learning_rate: of Adam at the start; it falls to 0 along a cosine.
        weight_decay: of AdamW.
    """

    epochs: int = 20
    batch_size: int = 512
    learning_rate: float = 2e-3
    weight_decay: float = 1e-4


@dataclass(frozen=True)
class Rows:
    """What a network is fitted to.

    Attributes:
        columns: the features, ``[N]`` or ``[N, 33]`` each.
        targets: ``[N]``: the actions, or the logits' differences.
        weights: ``float [N]``, how much each row counts.
    """

    columns: Mapping[str, _Array]
    targets: _Array
    weights: _Array


def fit_actions(
    network: PolicyNetwork, rows: Rows, config: FitConfig, seed: int
) -> Iterator[dict[str, float]]:
    """Make the network choose given actions: weighted cross entropy.

    Args:
        network: what is fitted, in place.
        rows: its targets are the actions.
        config: how.
        seed: of the order of the rows.

    Yields:
        After each epoch: the mean loss and the weighted share of rows that agree.

    Raises:
        OptionsError: there is no row that counts.
    """

    def loss(logits: Any, batch: Mapping[str, Any]) -> Any:
        each = tf.nn.sparse_softmax_cross_entropy_with_logits(batch["target"], logits)
        return tf.reduce_sum(each * batch["weight"])

    def agreement(logits: Any, batch: Mapping[str, Any]) -> Any:
        return tf.cast(tf.equal(tf.argmax(logits, -1), batch["target"]), tf.float32)

    fitted = replace(rows, targets=rows.targets.astype(np.int64))
    yield from _Fit(network, config, loss, agreement).epochs(fitted, seed)


def fit_advantages(
    network: PolicyNetwork, rows: Rows, config: FitConfig, seed: int
) -> Iterator[dict[str, float]]:
    """Make the difference of two logits equal to given numbers: Huber's loss.

    Args:
        network: one with two actions, fitted in place.
        rows: its targets are the second action's logit less the first's.
        config: how.
        seed: of the order of the rows.

    Yields:
        After each epoch: the mean loss and the weighted share of rows where the signs agree.

    Raises:
        OptionsError: there is no row that counts.
    """

    def loss(logits: Any, batch: Mapping[str, Any]) -> Any:
        error = logits[:, 1] - logits[:, 0] - batch["target"]
        size = tf.abs(error)
        each = tf.where(size < _HUBER, 0.5 * error * error, _HUBER * (size - 0.5 * _HUBER))
        return tf.reduce_sum(each * batch["weight"])

    def agreement(logits: Any, batch: Mapping[str, Any]) -> Any:
        return tf.cast(tf.equal(logits[:, 1] > logits[:, 0], batch["target"] > 0), tf.float32)

    fitted = replace(rows, targets=rows.targets.astype(np.float32))
    yield from _Fit(network, config, loss, agreement).epochs(fitted, seed)


class _Fit:
    """Gradient steps over rows in a random order."""

    def __init__(
        self, network: PolicyNetwork, config: FitConfig, loss: _OfBatch, agreement: _OfBatch
    ) -> None:
        self._network = network
        self._config = config
        self._loss = loss
        self._agreement = agreement

    def epochs(self, rows: Rows, seed: int) -> Iterator[dict[str, float]]:
        count = len(rows.targets)
        if count == 0 or not rows.weights.sum() > 0:
            raise OptionsError(f"fit: expected rows that count, found {count} of no weight")
        weights = (rows.weights / rows.weights.mean()).astype(np.float32)
        names = {*self._network.features(), *({"mask"} & rows.columns.keys())}
        inputs = {name: rows.columns[name] for name in names}
        size = self._config.batch_size
        step = self._step(self._config.epochs * -(-count // size))
        random = np.random.default_rng(seed)
        for _ in range(self._config.epochs):
            order = random.permutation(count)
            sums = np.zeros(2)
            for start in range(0, count, size):
                chosen = order[start : start + size]
                batch = {
                    "inputs": {name: tf.constant(each[chosen]) for name, each in inputs.items()},
                    "target": tf.constant(rows.targets[chosen]),
                    "weight": tf.constant(weights[chosen]),
                }
                sums += [float(each) for each in step(batch)]
            yield {"loss": sums[0] / count, "agreement": sums[1] / float(weights.sum())}

    def _step(self, steps: int) -> Any:
        """One gradient step; it returns the batch's loss and its weighted agreement."""
        network, variables = self._network, self._network.trainable_variables
        rate = keras.optimizers.schedules.CosineDecay(self._config.learning_rate, steps)
        optimizer = keras.optimizers.AdamW(rate, weight_decay=self._config.weight_decay)
        optimizer.build(variables)

        def step(batch: Any) -> Any:
            with tf.GradientTape() as tape:
                logits = network(batch["inputs"])
                total = self._loss(logits, batch)
                mean = total / tf.cast(tf.shape(batch["target"])[0], tf.float32)
            optimizer.apply(tape.gradient(mean, variables), variables)
            return total, tf.reduce_sum(self._agreement(logits, batch) * batch["weight"])

        return tf.function(step, reduce_retracing=True)

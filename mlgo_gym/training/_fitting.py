"""Fitting a network to targets: the supervised part that several trainers share."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from mlgo_gym.base import OptionsError
from mlgo_gym.training._networks import PolicyNetwork
from mlgo_gym.training._ranges import Count, NotNegative, Positive, Ranged

_Array = np.ndarray[Any, Any]
_OfRows = Callable[[Any, Any], Any]
"""From logits ``[N, actions]`` and targets ``[N]`` to a number for each row."""

_Goal = tuple[_OfRows, _OfRows]
"""The loss of each row, and whether it agrees with its target."""


@dataclass(frozen=True)
class FitConfig(Ranged):
    """How a network is fitted; docs/guides/training.md says what each setting means."""

    epochs: Count = 20
    batch_size: Count = 512
    learning_rate: Positive = 2e-3
    weight_decay: NotNegative = 1e-4


@dataclass(frozen=True)
class Rows:
    """Columns ``[N]`` or ``[N, 33]``; targets ``[N]``, actions or logits' differences; weights."""

    columns: Mapping[str, _Array]
    targets: _Array
    weights: _Array


def fit_actions(
    network: PolicyNetwork, rows: Rows, config: FitConfig, seed: int
) -> Iterator[dict[str, float]]:
    """Make the network choose given actions, in place: weighted cross entropy."""

    def loss(logits: Any, targets: Any) -> Any:
        return tf.nn.sparse_softmax_cross_entropy_with_logits(targets, logits)

    def agrees(logits: Any, targets: Any) -> Any:
        return tf.equal(tf.argmax(logits, -1), targets)

    fitted = replace(rows, targets=rows.targets.astype(np.int64))
    return _epochs(network, fitted, config, seed, (loss, agrees))


def fit_advantages(
    network: PolicyNetwork, rows: Rows, config: FitConfig, seed: int
) -> Iterator[dict[str, float]]:
    """Fit the second logit less the first, in place, by Huber's loss; rows agree by sign."""

    def loss(logits: Any, targets: Any) -> Any:
        return keras.losses.huber(targets[:, None], (logits[:, 1] - logits[:, 0])[:, None])

    def agrees(logits: Any, targets: Any) -> Any:
        return tf.equal(logits[:, 1] > logits[:, 0], targets > 0)

    fitted = replace(rows, targets=rows.targets.astype(np.float32))
    return _epochs(network, fitted, config, seed, (loss, agrees))


def _epochs(
    network: PolicyNetwork, rows: Rows, config: FitConfig, seed: int, goal: _Goal
) -> Iterator[dict[str, float]]:
    """Gradient steps in random order; yields each epoch's mean loss and weighted agreement."""
    count = len(rows.targets)
    if count == 0 or not rows.weights.sum() > 0:
        raise OptionsError(f"fit: expected rows that count, found {count} of no weight")
    weights = (rows.weights / rows.weights.mean()).astype(np.float32)
    names = {*network.features(), *({"mask"} & rows.columns.keys())}
    size = config.batch_size
    step = _step(network, config, config.epochs * -(-count // size), goal)
    random = np.random.default_rng(seed)
    for _ in range(config.epochs):
        order = random.permutation(count)
        sums = np.zeros(2)
        for start in range(0, count, size):
            chosen = order[start : start + size]
            inputs = {name: tf.constant(rows.columns[name][chosen]) for name in names}
            batch = (tf.constant(each[chosen]) for each in (rows.targets, weights))
            sums += [float(each) for each in step(inputs, *batch)]
        yield {"loss": sums[0] / count, "agreement": sums[1] / float(weights.sum())}


def _step(network: PolicyNetwork, config: FitConfig, steps: int, goal: _Goal) -> Any:
    """One gradient step; it returns the batch's loss and its weighted agreement."""
    loss, agrees = goal
    variables = network.trainable_variables
    rate = keras.optimizers.schedules.CosineDecay(config.learning_rate, steps)
    optimizer = keras.optimizers.AdamW(rate, weight_decay=config.weight_decay)
    optimizer.build(variables)

    def step(inputs: Any, targets: Any, weights: Any) -> Any:
        with tf.GradientTape() as tape:
            logits = network(inputs)
            total = tf.reduce_sum(loss(logits, targets) * weights)
            mean = total / tf.cast(tf.shape(targets)[0], tf.float32)
        optimizer.apply(tape.gradient(mean, variables), variables)
        agreeing = tf.cast(agrees(logits, targets), tf.float32)
        return total, tf.reduce_sum(agreeing * weights)

    return tf.function(step, autograph=False, reduce_retracing=True)

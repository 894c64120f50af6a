"""Fitting a network to targets, and to recorded decisions: what several trainers share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from mlgo_gym.base import OptionsError, TrainingError
from mlgo_gym.datasets import Episode
from mlgo_gym.problems import Problem
from mlgo_gym.training._data import Data
from mlgo_gym.training._networks import (
    ALL_FEATURES,
    Normalization,
    PolicyNetwork,
    network_features,
    network_for,
)
from mlgo_gym.training._run import TrainingRun
from mlgo_gym.training._train import Count, NotNegative, Positive, Ranged, Seed, Widths
from mlgo_gym.training._validation import Validation, validate

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


@dataclass(frozen=True)
class FittedConfig(Ranged):
    """The settings that decide the network; docs/guides/training.md explains each."""

    seed: Seed = 0
    features: str = ALL_FEATURES
    hidden: Widths = (64, 64)
    rows: Count = 200_000
    fit: FitConfig = field(default_factory=FitConfig)


def rows_of(episodes: Iterable[Episode], problem: Problem, config: FittedConfig) -> Rows:
    """Decisions of episodes, drawn at random; those without a weight count 1."""
    parts = list(episodes)
    if not parts:
        raise TrainingError("imitation: expected recorded decisions, found none")
    observations = np.concatenate([each.observations for each in parts])
    actions = np.concatenate([each.actions for each in parts])
    weights = np.concatenate([each.label("sample_weight") for each in parts])
    weights = np.where(np.isfinite(weights), weights, 1.0)
    random = np.random.default_rng(config.seed)
    order = np.sort(random.permutation(len(actions))[: config.rows])
    return Rows(problem.layout.columns(observations[order]), actions[order], weights[order])


def fit_decisions(
    run: TrainingRun, episodes: Iterable[Episode], config: FittedConfig, data: Data
) -> Validation:
    """Fit a network to decisions, leave it as the run's model, and validate it."""
    rows = rows_of(episodes, run.problem, config)
    features = network_features(run.problem, config.features)
    normalization = Normalization.fit(rows.columns, features)
    network = network_for(run.problem, normalization, config.hidden, config.seed)
    run.doing("fitting")
    numbers: dict[str, float] = {}
    for epoch, numbers in enumerate(fit_actions(network, rows, config.fit, config.seed)):
        run.scalars(epoch, {f"fit/{key}": value for key, value in numbers.items()})
        if run.is_over:
            break
    run.export(network, numbers)
    run.doing("validation")
    found = validate(run.model, data, run.problem)
    run.scalars(config.fit.epochs, found.scalars())
    run.export(run.model, {**numbers, "validation": found.to_json()})
    return found

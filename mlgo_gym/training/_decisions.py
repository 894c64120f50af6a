"""A network that answers as recorded decisions do: what ``clone`` and ``imitate`` share."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from mlgo_gym.base import TrainingError
from mlgo_gym.datasets import Episode
from mlgo_gym.problems import Problem
from mlgo_gym.training._data import Data
from mlgo_gym.training._features import ALL_FEATURES
from mlgo_gym.training._fitting import FitConfig, Rows, fit_actions
from mlgo_gym.training._networks import network_features, network_for
from mlgo_gym.training._normalization import Normalization
from mlgo_gym.training._ranges import Count, Ranged, Seed, Widths
from mlgo_gym.training._run import TrainingRun
from mlgo_gym.training._validation import Validation, validate


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

"""The teacher: gradient boosting (scikit-learn) on labels, to be distilled into a network.

Trees see thresholds in single features where a small network sees slopes, and need fewer labels
here. They are no graph that LLVM could run, so a network learns to answer as they do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.ensemble import HistGradientBoostingClassifier

from mlgo_gym.training._ranges import Count, NotNegative, Positive, Ranged, Share
from mlgo_gym.training._train import NothingToLearnError

_Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class TeacherConfig(Ranged):
    """How trees are fitted; docs/guides/training.md says what each setting means."""

    bags: Count = 8
    bag_share: Share = 0.7
    iterations: Count = 250
    learning_rate: Positive = 0.06
    least_leaf_rows: Count = 40
    l2: NotNegative = 1.0
    clip_bytes: Positive = 400.0
    default_pull_bytes: NotNegative = 0.5


@dataclass(frozen=True)
class Labels:
    """The labels of decisions: features ``[N, numbers]``, ``[N]`` of all else.

    Each number has its feature's name. Advantages are bytes that inlining saves, or NaN; defaults,
    LLVM's, are 1 or -1, and those of a model as far from 0 as it is certain.
    """

    names: tuple[str, ...]
    features: _Array
    advantages: _Array
    weights: _Array
    defaults: _Array
    packages: _Array

    @property
    def is_known(self) -> _Array:
        """``bool [N]``: where `advantages` says something."""
        return np.isfinite(self.advantages)


Teacher = Callable[[_Array], _Array]
"""From features ``[M, features]`` to each ensemble's log-odds of inlining, ``[bags, M]``."""


def fit_teacher(labels: Labels, config: TeacherConfig, seed: int) -> Teacher:
    """Fit a classifier of whether to inline, where a mistake costs the bytes that it loses."""
    known = labels.is_known & (labels.weights > 0)
    table, packages = labels.features[known].astype(np.float64), labels.packages[known]
    saved, weights = labels.advantages[known], labels.weights[known]
    costs = np.minimum(np.abs(saved), config.clip_bytes) * weights
    pulls = config.default_pull_bytes * weights
    rows = np.concatenate([table, table])
    is_better = np.concatenate([saved > 0, labels.defaults[known] > 0])
    cost = np.concatenate([costs, pulls])
    counted = cost > 0
    if len(set(is_better[counted])) < 2:
        raise NothingToLearnError(
            f"labels: expected calls that are better inlined and calls that are not, found "
            f"{int(counted.sum())} of one kind"
        )
    models = [
        HistGradientBoostingClassifier(
            learning_rate=config.learning_rate,
            max_iter=config.iterations,
            min_samples_leaf=config.least_leaf_rows,
            l2_regularization=config.l2,
            early_stopping=False,
            random_state=seed + bag,
        ).fit(rows[chosen], is_better[chosen], sample_weight=cost[chosen])
        for bag, chosen in enumerate(_bags(packages, is_better, counted, config, seed))
    ]

    def log_odds(values: _Array) -> _Array:
        table = values.astype(np.float64)
        return np.stack([each.decision_function(table) for each in models])

    return log_odds


def _bags(
    packages: _Array, is_better: _Array, counted: _Array, config: TeacherConfig, seed: int
) -> Iterator[_Array]:
    """The rows of each ensemble: of some packages, or of all where those say one thing only."""
    random = np.random.default_rng(seed)
    names = np.unique(packages)
    size = max(1, round(config.bag_share * len(names))) if config.bags > 1 else len(names)
    for _ in range(config.bags):
        drawn = np.isin(packages, random.permutation(names)[:size])
        chosen = np.concatenate([drawn, drawn]) & counted
        yield chosen if len(set(is_better[chosen])) == 2 else counted

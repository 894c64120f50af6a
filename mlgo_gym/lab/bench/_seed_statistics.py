"""Statistics of runs with several seeds on several packages.

Scores are float64 ``[seeds, packages]``; more is better. The definitions are those of Agarwal et
al., "Deep Reinforcement Learning at the Edge of the Statistical Precipice" (NeurIPS 2021), with
packages as tasks: the interquartile mean, performance profiles, and the probability of improvement.

Intervals say what would come of other packages of this kind and of other seeds: packages are drawn
first, with replacement, and then for each of them as many seeds as there are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlgo_gym import evaluation
from mlgo_gym.evaluation import LEVEL, RESAMPLES

_Array = NDArray[Any]


def mean(scores: _Array) -> float:
    """The mean over packages of the means over seeds."""
    return float(scores.mean(axis=0).mean())


def interquartile_mean(scores: _Array) -> float:
    """The mean of the middle half of all scores."""
    return float(evaluation.interquartile_mean(scores.ravel()))


def probability_of_improvement(scores: _Array, others: _Array) -> float:
    """How likely a run is better than another's on the same package; equal ones count half.

    >>> probability_of_improvement(np.array([[1.0, 2.0]]), np.array([[0.0, 2.0]]))
    0.75
    """
    mine, theirs = scores[:, None, :], others[None, :, :]
    better = (mine > theirs) + 0.5 * (mine == theirs)
    return float(better.mean(axis=(0, 1)).mean())


def performance_profile(scores: _Array, thresholds: _Array) -> _Array:
    """The share of runs whose score is above each threshold: float64 ``[thresholds]``.

    >>> performance_profile(np.array([[1.0, 3.0]]), np.array([0.0, 2.0, 4.0])).tolist()
    [1.0, 0.5, 0.0]
    """
    return np.asarray((scores[None] > thresholds[:, None, None]).mean(axis=(1, 2)))


def bootstrap(
    scores: _Array,
    statistic: Callable[[_Array], float],
    *,
    seed: int = 0,
    resamples: int = RESAMPLES,
) -> tuple[float, float] | None:
    """The middle 95 % of a statistic over samples of packages and seeds.

    ``None`` of one package and one seed, of which nothing else can be drawn.
    """
    seeds, packages = scores.shape
    if scores.size <= 1:
        return None
    generator = np.random.default_rng(seed)
    found = np.empty(resamples)
    for index in range(resamples):
        drawn = generator.integers(packages, size=packages)
        runs = generator.integers(seeds, size=(seeds, packages))
        found[index] = statistic(scores[runs, drawn])
    low, high = np.percentile(found, LEVEL)
    return float(low), float(high)

"""Statistics of several seeds; the expected values are what rliable 1.2.0 says of these scores."""

from __future__ import annotations

import numpy as np
import pytest

from mlgo_gym.lab.bench._table import (
    bootstrap,
    mean,
    performance_profile,
    probability_of_improvement,
)

SCORES = np.array([[0.0, 1, 2, 30], [5, 4, 2, 1], [9, 8, -7, 3.5]])
OTHERS = np.array([[1.0, 1, 0, 3], [5, 3, 2, 2]])


def test_as_rliable() -> None:
    assert mean(SCORES) == pytest.approx(4.875)
    assert probability_of_improvement(SCORES, OTHERS) == pytest.approx(0.625)
    shares = performance_profile(SCORES, np.array([0.0, 1, 2, 5]))
    assert shares.tolist() == pytest.approx([10 / 12, 8 / 12, 6 / 12, 3 / 12])


def test_intervals_cover_the_mean_of_where_scores_are_from() -> None:
    generator = np.random.default_rng(0)
    covered = 0
    for repeat in range(100):
        packages = generator.normal(size=12)
        scores = packages + generator.normal(scale=0.5, size=(5, 12))
        ends = bootstrap(scores, mean, seed=repeat, resamples=300)
        assert ends is not None
        covered += ends[0] <= 0 <= ends[1]
    assert 85 <= covered <= 100


def test_intervals_of_seeds_and_of_packages() -> None:
    assert bootstrap(np.array([[1.0]]), mean) is None
    assert bootstrap(np.array([[2.0], [2.0]]), mean) == (2.0, 2.0)
    low, high = bootstrap(np.array([[1.0, 3.0]]), mean) or (0, 0)
    assert (low, high) == (1.0, 3.0)
    assert bootstrap(SCORES, mean) == bootstrap(SCORES, mean)

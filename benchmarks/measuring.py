"""Clocks and statistics of the measurements."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from mlgo_gym.evaluation._summary import draw, interval

Name = TypeVar("Name", bound=Hashable)
T = TypeVar("T")


def timed(work: Callable[[], T]) -> tuple[float, T]:
    """Return how many seconds some work took, and what it returned."""
    start = time.perf_counter()
    result = work()
    return time.perf_counter() - start, result


def in_turns(ways: Mapping[Name, Callable[[], object]], rounds: int) -> dict[Name, list[float]]:
    """Return each way's seconds by round; in a round all ways run, one after another."""
    seconds: dict[Name, list[float]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, work in ways.items():
            seconds[name].append(timed(work)[0])
    return seconds


def mean_interval(
    values: NDArray[Any], packages: Sequence[Hashable] | None = None
) -> tuple[float, float]:
    """Return the bootstrap interval of a mean, at 95 %.

    Args:
        values: float ``[samples]``.
        packages: what each sample is drawn with; by default each is drawn for itself.
    """
    weights = draw(range(len(values)) if packages is None else packages, seed=0)
    return interval(weights, values, np.ones(len(values))) or (math.nan, math.nan)


def rank_correlation(one: NDArray[Any], other: NDArray[Any], constant: float = math.nan) -> float:
    """Return Spearman's rank correlation, or ``constant`` where one side is always the same."""
    if not (np.ptp(one) and np.ptp(other)):
        return constant
    return float(np.corrcoef(_ranks(one), _ranks(other))[0, 1])


def _ranks(values: NDArray[Any]) -> NDArray[Any]:
    """Ranks; equal values share the mean of theirs."""
    _, places, counts = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - (counts - 1) / 2)[places]

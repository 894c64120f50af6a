"""The update of ``es``: from what disturbed weights cost to a step.

Evolution strategies as in Salimans et al., "Evolution Strategies as a Scalable Alternative to
Reinforcement Learning" (2017): antithetic pairs, shaped by rank. Noise is in units of each weight's
scale, so that large and small tensors are disturbed alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

_Array = np.ndarray[Any, Any]

_LEAST_SCALE: Final = 0.3
"""Heads and biases start at 0; this is about what they become."""


def scale_of(weights: Sequence[_Array], *, head_only: bool = False) -> _Array:
    """What one unit of noise is for each weight: the root mean square of its tensor, 0.3 at least.

    Args:
        weights: as a network's ``get_weights()``.
        head_only: only the last two tensors, the last layer's, are disturbed; the others have 0.

    Returns:
        ``float64 [N]``, all tensors one after the other.

    >>> scale_of([np.full((2, 2), 3.0), np.zeros(1)])
    array([3. , 3. , 3. , 3. , 0.3])
    """
    scales = []
    for index, each in enumerate(weights):
        is_on = not head_only or index >= len(weights) - 2
        scale = max(float(np.sqrt(np.mean(np.square(each)))), _LEAST_SCALE) if is_on else 0.0
        scales.append(np.full(each.size, scale))
    return np.concatenate(scales)


def flattened(weights: Sequence[_Array]) -> _Array:
    """All weights as one vector, ``float64 [N]``."""
    return np.concatenate([np.asarray(each, np.float64).reshape(-1) for each in weights])


def like(vector: _Array, weights: Sequence[_Array]) -> list[_Array]:
    """A vector as tensors of the same shapes, ``float32``."""
    ends = np.cumsum([each.size for each in weights])
    parts = np.split(vector, ends[:-1])
    return [
        part.reshape(each.shape).astype(np.float32)
        for part, each in zip(parts, weights, strict=True)
    ]


def noise_of(pairs: int, count: int, generator: np.random.Generator) -> _Array:
    """Noise for the first of each pair, ``float64 [pairs, count]``; the second has it negated."""
    return generator.standard_normal((pairs, count))


def direction_of(costs: _Array, noise: _Array) -> _Array:
    """Where costs fall, about one unit long in each weight where there is nothing but noise.

    Each pair counts by the rank of the difference of its costs, so one that is far off counts
    little more than the next. Pairs without a difference do not count.

    Args:
        costs: ``float [2, pairs]``, of the weights with the noise added and with it subtracted.
        noise: ``float [pairs, N]``.

    Returns:
        ``float [N]``.

    >>> direction_of(np.array([[1.0, 5.0], [2.0, 5.0]]), np.array([[1.0, -1.0], [3.0, 3.0]]))
    array([ 1., -1.])
    """
    differences = costs[1] - costs[0]
    sizes = np.abs(differences)
    ranks = np.array([np.sum(sizes <= size) - np.sum(sizes == 0) for size in sizes], float)
    shaped = np.sign(differences) * np.where(sizes > 0, ranks, 0.0)
    length = float(np.sqrt(np.sum(np.square(shaped))))
    direction: _Array = shaped @ noise / length if length else np.zeros(noise.shape[1])
    return direction


class Momentum:
    """Steps that remember the ones before.

    Args:
        count: how many weights there are.
        learning_rate: a step's length, in units of the weights' scale.
        kept: the part of the last step's direction that goes on.

    Attributes:
        direction: where the last step went, ``float64 [N]``.
    """

    def __init__(self, count: int, learning_rate: float, kept: float) -> None:
        self._learning_rate = learning_rate
        self._kept = kept
        self.direction: _Array = np.zeros(count)

    def step(self, direction: _Array) -> _Array:
        """The step in units of the weights' scale, ``float64 [N]``."""
        self.direction = self._kept * self.direction + (1 - self._kept) * direction
        step: _Array = self._learning_rate * self.direction
        return step

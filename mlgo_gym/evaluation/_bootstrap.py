"""Bootstrap intervals over packages, and over the modules in them.

What is asked is what a policy does to other programs of this kind. Modules of one package resemble
each other, so packages are drawn first, with replacement, and then for each of them as many of its
modules as it has, with replacement (the two-stage bootstrap of Davison and Hinkley, "Bootstrap
Methods and their Application", 1997, section 3.8). With one package, only modules are drawn.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

RESAMPLES: Final = 2000
_LEVEL: Final = (2.5, 97.5)


def draw(packages: Sequence[Hashable], seed: int, resamples: int = RESAMPLES) -> NDArray[Any]:
    """How often each module is drawn: int64 ``[resamples, modules]``.

    ``packages`` has each module's package; the same seed gives the same draws.
    """
    order = {name: number for number, name in enumerate(dict.fromkeys(packages))}
    numbers = np.array([order[name] for name in packages], np.int64)
    random = np.random.default_rng(seed)
    known, sizes = np.unique(numbers, return_counts=True)
    weights = np.zeros((resamples, len(numbers)), np.int64)
    if len(known):
        times = random.multinomial(len(known), np.full(len(known), 1 / len(known)), resamples)
        for package, size, drawn in zip(known, sizes, times.T, strict=True):
            weights[:, numbers == package] = random.multinomial(
                drawn * size, np.full(size, 1 / size)
            )
    return weights


def interval(
    weights: NDArray[Any], numerators: NDArray[Any], denominators: NDArray[Any]
) -> tuple[float, float] | None:
    """The middle 95 % of a ratio of sums over the samples, ``None`` where no sample has a ratio.

    Args:
        weights: from `draw`, ``[resamples, modules]``.
        numerators: float ``[modules]``.
        denominators: float ``[modules]``.
    """
    above, below = weights @ numerators, weights @ denominators
    ratios = above[below != 0] / below[below != 0]
    if not len(ratios):
        return None
    low, high = np.percentile(ratios, _LEVEL)
    return float(low), float(high)

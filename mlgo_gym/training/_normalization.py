"""Normalisation of features, fitted once and kept inside the graph.

Every feature becomes two numbers: its signed logarithm, standardised, which keeps large counts
apart, and its value clipped to the bulk of what was seen and scaled to [-1, 1], which keeps costs
near the threshold apart. Infinities are clipped; NaN becomes the upper bound, since LLVM sends it
for what is infinitely heavy (``use_def_density``).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final, Self

import numpy as np
import tensorflow as tf

from mlgo_gym.base import OptionsError

_LOWEST_SCALE: Final = 1e-3
_LARGEST: Final = 1e9
_DEVIATIONS: Final = 5.0

_BULK: Final = (0.5, 99.5)


@dataclass(frozen=True, slots=True)
class Normalization:
    """Mean, deviation and two percentiles of ``sign(x) * log(1 + |x|)``, for each number.

    A feature of several numbers that differ in kind, such as an embedding, is named for each.
    """

    names: tuple[str, ...]
    mean: tuple[float, ...]
    scale: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]

    def __post_init__(self) -> None:
        for key in ("mean", "scale", "low", "high"):
            if len(getattr(self, key)) != len(self.names):
                raise OptionsError(
                    f"normalisation: {key}: expected {len(self.names)} numbers, "
                    f"found {len(getattr(self, key))}"
                )

    @classmethod
    def fit(cls, columns: Mapping[str, np.ndarray[Any, Any]], names: Sequence[str]) -> Self:
        """The statistics of what was observed, as far as it is finite.

        Args:
            columns: arrays ``[N, ...]`` by feature; of a feature that is named once, all numbers
                are of one kind, such as positions.
            names: one for each number.
        """
        numbers = Counter(names)
        rows = [
            _statistics(name, part)
            for name, count in numbers.items()
            for part in np.split(np.asarray(columns[name], np.float64).reshape(-1, count), count, 1)
        ]
        mean, scale, low, high = zip(*rows, strict=True)
        return cls(tuple(names), mean, scale, low, high)

    def to_json(self) -> dict[str, Any]:
        return {key: list(getattr(self, key)) for key in ("names", "mean", "scale", "low", "high")}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        try:
            numbers = [tuple(map(float, value[key])) for key in ("mean", "scale", "low", "high")]
            names = tuple(map(str, value["names"]))
        except (KeyError, TypeError, ValueError) as error:
            raise OptionsError(f"normalisation: expected its statistics: {error!r}") from error
        if not all(map(math.isfinite, chain(*numbers))):
            raise OptionsError("normalisation: expected finite statistics, found others")
        return cls(names, *numbers)

    def __call__(self, values: Any) -> Any:
        """Normalise inside a graph: ``float32 [..., features]`` to ``[..., 2 * features]``."""
        low, high, mean, scale = (
            tf.constant(each, tf.float32) for each in (self.low, self.high, self.mean, self.scale)
        )
        known = tf.where(tf.equal(values, values), values, high)
        clipped = tf.minimum(tf.maximum(known, low), high)
        linear = (clipped - low) * (2.0 / tf.maximum(high - low, _LOWEST_SCALE)) - 1.0
        bounded = tf.minimum(tf.maximum(known, -_LARGEST), _LARGEST)
        logarithm = tf.sign(bounded) * tf.math.log(1.0 + tf.abs(bounded))
        standard = (logarithm - mean) / scale
        standard = tf.minimum(tf.maximum(standard, -_DEVIATIONS), _DEVIATIONS)
        return tf.concat([standard, linear], axis=-1)


def _statistics(name: str, values: np.ndarray[Any, Any]) -> tuple[float, float, float, float]:
    finite = values[np.isfinite(values)]
    if not finite.size:
        raise OptionsError(f"normalisation: expected finite values of {name!r}, found none")
    logarithm = np.sign(finite) * np.log1p(np.abs(finite))
    low, high = np.percentile(finite, _BULK)
    scale = max(float(logarithm.std()), _LOWEST_SCALE)
    return float(logarithm.mean()), scale, float(low), float(high)

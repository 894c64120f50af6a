"""A network's logits without TensorFlow: one observation at a time, in numpy.

What answers LLVM while weights change gets one observation at a time. TensorFlow takes about 0.7 ms
for each, this 0.1 ms or less; compiling the network to native code takes a second for each set of
weights. The tests compare both with the same weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Protocol

import keras
import numpy as np

from mlgo_gym.errors import InternalError
from mlgo_gym.problems._observations import observation_dtype
from mlgo_gym.problems._regalloc_eviction import ASKING_POSITION, POSITIONS
from mlgo_gym.training._networks import (
    BROKEN_HINT,
    CERTAIN,
    DEFAULT_THRESHOLD,
    FORBIDDEN,
    HEAVIEST,
    LIGHTER,
    NOTHING,
    RULE_LIMIT,
    RULE_SCALE,
    EvictionNetwork,
    InliningNetwork,
    PolicyNetwork,
)
from mlgo_gym.training._normalization import DEVIATIONS, LARGEST, LOWEST_SCALE, Normalization

_Array = np.ndarray[Any, Any]

# As precise as in the graph.
_LIGHTER: Final = np.float32(LIGHTER)
_BROKEN_HINT: Final = np.float32(BROKEN_HINT)
_NOTHING: Final = np.float32(NOTHING)
_HEAVIEST: Final = np.float32(HEAVIEST)


class PlainNetwork(Protocol):
    """What answers: a network with fixed weights."""

    def logits(self, payload: bytes) -> _Array:
        """The logits of an observation, ``float32 [actions]``; `FORBIDDEN` may not be chosen.

        Args:
            payload: the raw tensors, as in `mlgo_gym.stream.Observation`.
        """


def plain_network(network: PolicyNetwork, weights: Sequence[_Array] | None = None) -> PlainNetwork:
    """A copy of a network as it is now, or with other weights.

    Args:
        network: one of `training._networks`.
        weights: in the order of its ``get_weights()``.

    Raises:
        InternalError: this kind of network is not known here.
    """
    parts = _Parts(network, network.get_weights() if weights is None else weights)
    if isinstance(network, InliningNetwork):
        return _PlainInlining(network, parts)
    if isinstance(network, EvictionNetwork):
        return _PlainEviction(network, parts)
    raise InternalError(f"plain network: expected one that is known, found {type(network)}")


class _Parts:
    """The weights by what they are for."""

    def __init__(self, network: PolicyNetwork, weights: Sequence[_Array]) -> None:
        by_id = {id(each): np.asarray(w) for each, w in zip(network.weights, weights, strict=True)}
        dense = [each for each in network.layers if isinstance(each, keras.layers.Dense)]
        self.layers: Final = [(by_id[id(each.kernel)], by_id[id(each.bias)]) for each in dense]
        self.named: Final = {
            each.name: by_id[id(each)] for each in network.weights if each.name.startswith("emb")
        }
        self.normalize: Final = _Normalizer(network.normalization)

    def score(self, values: _Array) -> _Array:
        """The dense layers: ``[N, inputs]`` to ``[N]``."""
        *hidden, (kernel, bias) = self.layers
        for weights, biases in hidden:
            values = np.maximum(values @ weights + biases, 0)
        scores: _Array = (values @ kernel + bias)[:, 0]
        return scores


class _Normalizer:
    """`Normalization` for arrays ``[N, features]``."""

    def __init__(self, statistics: Normalization) -> None:
        self._low, self._high, self._mean, self._scale = (
            np.asarray(each, np.float32)
            for each in (statistics.low, statistics.high, statistics.mean, statistics.scale)
        )
        self._width = np.float32(2.0) / np.maximum(self._high - self._low, LOWEST_SCALE)

    def __call__(self, values: _Array) -> _Array:
        known = np.where(np.isnan(values), self._high, values)
        clipped = np.minimum(np.maximum(known, self._low), self._high)
        bounded = np.minimum(np.maximum(known, -LARGEST), LARGEST)
        logarithm = np.sign(bounded) * np.log1p(np.abs(bounded))
        standard = (logarithm - self._mean) / self._scale
        standard = np.minimum(np.maximum(standard, -DEVIATIONS), DEVIATIONS)
        return np.concatenate([standard, (clipped - self._low) * self._width - 1], axis=1)


class _PlainInlining:
    """`InliningNetwork`."""

    def __init__(self, network: InliningNetwork, parts: _Parts) -> None:
        self._dtype = observation_dtype(network.problem)
        self._names = network.features()
        self._parts = parts
        self._band = network.band

    def logits(self, payload: bytes) -> _Array:
        row = np.frombuffer(payload, self._dtype)[0]
        values = np.array([[row[name] for name in self._names]], np.float32)
        cost = float(row["cost_estimate"])
        rule = min(max((DEFAULT_THRESHOLD - cost) / RULE_SCALE, -RULE_LIMIT), RULE_LIMIT)
        advantage = float(self._parts.score(self._parts.normalize(values))[0]) + rule
        if self._band and cost < self._band[0]:
            advantage = CERTAIN
        if self._band and cost >= self._band[1]:
            advantage = -CERTAIN
        return np.array([-0.5 * advantage, 0.5 * advantage], np.float32)


class _PlainEviction:
    """`EvictionNetwork`: only the positions that may be chosen are looked at."""

    def __init__(self, network: EvictionNetwork, parts: _Parts) -> None:
        self._dtype = observation_dtype(network.problem)
        self._names = network.features()
        self._parts = parts
        self._tables = [
            (name.removeprefix("embedding_"), table) for name, table in parts.named.items()
        ]

    def logits(self, payload: bytes) -> _Array:
        row = np.frombuffer(payload, self._dtype)[0]
        rule, positions = _eviction_rule(row)
        values = np.empty((len(positions) + 1, len(self._names)), np.float32)
        chosen = np.append(positions, ASKING_POSITION)
        for index, name in enumerate(self._names):
            column = row[name]
            values[:, index] = column[chosen] if column.ndim else column
        normal = self._parts.normalize(values)
        normal, asking = normal[:-1], normal[-1]
        is_asking = (positions == ASKING_POSITION)[:, None].astype(np.float32)
        stages = [table[row[name][positions]] for name, table in self._tables]
        scores = self._parts.score(
            np.concatenate([normal, normal - asking, is_asking, *stages], axis=1)
        )
        logits = np.full(POSITIONS, FORBIDDEN, np.float32)
        logits[positions] = scores + rule[positions]
        return logits


def _eviction_rule(row: Any) -> tuple[_Array, _Array]:
    """LLVM's own rule as logits, and the positions that the network chooses among."""
    density, mask = row["use_def_density"], row["mask"]
    weight = np.minimum(np.where(np.isnan(density), _HEAVIEST, density), _HEAVIEST)
    is_lighter = weight < weight[ASKING_POSITION]
    rule = _LIGHTER * is_lighter - _BROKEN_HINT * row["nr_broken_hints"] - weight
    rule[ASKING_POSITION] = _NOTHING
    if mask[ASKING_POSITION]:
        is_lighter[ASKING_POSITION] = True
        mask = mask * is_lighter
    return rule, np.flatnonzero(mask)

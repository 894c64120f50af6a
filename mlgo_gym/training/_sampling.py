"""Policies that draw their answers from a network's probabilities, several at once.

What is drawn depends on the observation, its number in its context and the key alone. So the same
key gives the same compilations, whatever the number of workers and whichever observations come
together.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import tensorflow as tf

from mlgo_gym.problems._problem import Problem
from mlgo_gym.stream._events import Header, Observation

_Array = np.ndarray[Any, Any]

_DIGEST_BYTES: Final = 6
"""48 random bits: exact as a float64, and below 1 when divided by 2**48."""


def raw_rows(payloads: Sequence[bytes], problem: Problem) -> _Array:
    """Raw observations as ``uint8 [N, bytes]``."""
    size = sum(spec.size_bytes for spec in problem.sent())
    return np.frombuffer(b"".join(payloads), np.uint8).reshape(-1, size)


def features_of(raw: Any, problem: Problem) -> dict[str, Any]:
    """Inside a TensorFlow graph: everything LLVM sent, by name, as networks take it.

    One tensor goes into the graph and not dozens, which at the usual one or two observations is
    most of the time.

    Args:
        raw: ``uint8 [batch, bytes]``, as `raw_rows` makes it.
        problem: what LLVM asked for.

    Returns:
        Of a tensor of the shape ``(1,)`` a ``[batch]``, of ``(1, 33)`` a ``[batch, 33]``.
    """
    features: dict[str, Any] = {}
    for run in Header(problem.sent()).runs:  # neighbours of one type and shape, taken at once
        size = run.count * run.dtype.itemsize
        block = tf.reshape(
            raw[:, run.offset : run.offset + size],
            [-1, len(run.names), *run.shape[2:], run.dtype.itemsize],
        )
        values = tf.unstack(tf.bitcast(block, tf.as_dtype(run.dtype)), axis=1)
        features |= zip(run.names, values, strict=True)
    return features


class BatchNetwork:
    """A network's logits for raw observations; the network may be trained meanwhile.

    Args:
        network: what answers, for all features by name.
        problem: what it answers.
        size: how many observations go through at once; fewer are filled up.
    """

    def __init__(
        self, network: Callable[[dict[str, Any]], Any], problem: Problem, size: int
    ) -> None:
        self._size: Final = size

        def logits(raw: Any) -> Any:
            return network(features_of(raw, problem))

        self._logits = tf.function(logits, jit_compile=True)

    def logits(self, rows: _Array) -> _Array:
        """The logits: ``float32 [N, actions]``.

        Args:
            rows: ``uint8 [N, bytes]``, of any length.
        """
        parts = []
        for start in range(0, len(rows), self._size):
            part = rows[start : start + self._size]
            filled = np.resize(part, (self._size, rows.shape[1]))  # repeats what is there
            parts.append(self._logits(tf.constant(filled)).numpy()[: len(part)])
        return np.concatenate(parts)


class SamplingPolicy:
    """Answers observations as a network's probabilities say, or with its largest logit.

    Args:
        network: gives the logits.
        problem: what LLVM asks for.
        key: decides what is drawn; ``None`` takes the largest.
    """

    def __init__(self, network: BatchNetwork, problem: Problem, key: str | None) -> None:
        self._network = network
        self._problem = problem
        self._key = None if key is None else hashlib.blake2b(key.encode()).digest()

    def __call__(self, observations: Sequence[Observation]) -> list[int]:
        """Answer observations of any compilations."""
        rows = raw_rows([each.payload for each in observations], self._problem)
        logits = self._network.logits(rows).astype(np.float64)
        if self._key is None:
            return [int(action) for action in logits.argmax(axis=-1)]
        return [
            _drawn(row, self._share(observation))
            for row, observation in zip(logits, observations, strict=True)
        ]

    def answer(self, observation: Observation) -> int:
        """Answer one observation."""
        return self([observation])[0]

    def _share(self, observation: Observation) -> float:
        """A number from 0 to below 1 that only this key and this decision have."""
        digest = hashlib.blake2b(
            observation.payload, key=self._key or b"", digest_size=_DIGEST_BYTES
        )
        digest.update(f"{observation.context}:{observation.index}".encode())
        return float(int.from_bytes(digest.digest(), "little")) / float(2 ** (8 * _DIGEST_BYTES))


def _drawn(logits: _Array, share: float) -> int:
    """The action at this share of the probabilities, laid end to end."""
    ends = np.cumsum(np.exp(logits - logits.max()))
    return int(np.searchsorted(ends, share * ends[-1], side="right"))

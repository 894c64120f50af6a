"""The critic: what an episode is still worth before a decision, from what LLVM says of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import keras
import tensorflow as tf

from mlgo_gym.training._normalization import Normalization


class Critic(keras.Model):  # type: ignore[misc, unused-ignore]
    """A dense network over the features; of positions, over the mean of those that are legal.

    Args:
        normalization: the statistics of the features, as the actor has them.
        hidden: the widths of the hidden layers.
        seed: of the initial weights. The last layer starts at zero, so every value does.
    """

    def __init__(self, normalization: Normalization, hidden: Sequence[int], seed: int) -> None:
        super().__init__()
        self._normalization = normalization
        self._hidden_layers = [
            keras.layers.Dense(
                width,
                activation="tanh",
                kernel_initializer=keras.initializers.GlorotNormal(seed=seed * 100 + 20 + index),
            )
            for index, width in enumerate(hidden)
        ]
        self._head = keras.layers.Dense(1, kernel_initializer="zeros")

    def call(self, observations: Mapping[str, Any]) -> Any:
        """The value of each observation, in the reward's unit.

        Args:
            observations: for each feature ``[batch]`` or ``[batch, 33]``; with ``mask``, which
                positions are legal.

        Returns:
            ``float32 [batch]``.
        """
        columns = [tf.cast(observations[name], tf.float32) for name in self._normalization.names]
        if "mask" not in observations:
            values = self._normalization(tf.stack(columns, axis=-1))
        else:
            mask = tf.cast(observations["mask"], tf.float32)
            wide = [each if each.shape.rank == 2 else each[:, None] + 0 * mask for each in columns]
            weights = mask / tf.reduce_sum(mask, axis=-1, keepdims=True)
            normal = self._normalization(tf.stack(wide, axis=-1))
            values = tf.reduce_sum(normal * weights[:, :, None], axis=1)
        for layer in self._hidden_layers:
            values = layer(values)
        return self._head(values)[:, 0]

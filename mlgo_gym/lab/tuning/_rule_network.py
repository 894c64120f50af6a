"""A rule as a graph, which is saved, compiled and asked as any network's is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import keras
import tensorflow as tf

from mlgo_gym.lab.tuning._rule import Rule, features_of
from mlgo_gym.problems import Problem


class RuleNetwork(keras.Model):  # type: ignore[misc, unused-ignore]
    """Comparisons and selections. Its weights are the two answers.

    A graph without variables would have another output than LLVM's signature names.
    """

    def __init__(self, rule: Rule, problem: Problem) -> None:
        super().__init__()
        self.problem = problem
        self._rule = rule
        self._answers = self.add_weight(
            shape=(2,), initializer=keras.initializers.Constant([-1.0, 1.0])
        )
        self.built = True

    def features(self) -> tuple[str, ...]:
        return features_of(self._rule)

    def config(self) -> dict[str, Any]:
        """Its configuration as JSON values; `load_network` does not make it."""
        rule = self._rule if isinstance(self._rule, bool) else asdict(self._rule)
        return {"kind": "rule", "problem": self.problem.name, "rule": rule}

    def call(self, observations: Mapping[str, Any]) -> Any:
        """The logits, ``float32 [batch, 2]``: not to inline, and to inline."""
        inline = self._answer(self._rule, observations)
        return tf.stack([-inline, inline], axis=-1)

    def _answer(self, rule: Rule, observations: Mapping[str, Any]) -> Any:
        if isinstance(rule, bool):
            return self._answers[int(rule) : int(rule) + 1]
        values = observations[rule.feature]
        is_low = tf.equal(values, 0) if rule.is_flag else tf.less(values, rule.least)
        low, high = (self._answer(each, observations) for each in (rule.low, rule.high))
        return tf.where(is_low, low, high)

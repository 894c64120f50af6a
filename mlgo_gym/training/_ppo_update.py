"""PPO's update: what one iteration's decisions change in the actor and the critic.

The loss is the clipped objective of Schulman et al., "Proximal Policy Optimization Algorithms"
(2017), equation 7, less the entropy, with the critic's squared error, and with the penalty on the
divergence of equation 8 where that is asked for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import keras
import numpy as np
import tensorflow as tf

from mlgo_gym.problems._observations import observation_dtype
from mlgo_gym.problems._problem import Problem
from mlgo_gym.training._critic import Critic
from mlgo_gym.training._episodes import Episode
from mlgo_gym.training._gae import discounted_returns, generalized_advantages
from mlgo_gym.training._networks import PolicyNetwork
from mlgo_gym.training._ppo_config import Config
from mlgo_gym.training._sampling import BatchNetwork, features_of

_Array = np.ndarray[Any, Any]

_KL_WALL: Final = 2.0
_KL_WALL_WEIGHT: Final = 1000.0
_KL_TOLERANCE: Final = 0.3
_KL_FACTOR: Final = 1.5
_ROWS_AT_ONCE: Final = 2048


@dataclass(frozen=True, slots=True)
class Batch:
    """An iteration's decisions.

    Attributes:
        rows: the raw observations, ``uint8 [N, bytes]``.
        actions: what was answered, ``int64 [N]``.
        advantages: in the reward's unit, ``float32 [N]``.
        returns: what the critic should have said, ``float32 [N]``, in the reward's unit.
        old_logits: of the network that answered, ``float32 [N, actions]``.
    """

    rows: _Array
    actions: _Array
    advantages: _Array
    returns: _Array
    old_logits: _Array


class Learner:
    """Actor, critic and optimiser, and the step that moves them."""

    def __init__(self, actor: PolicyNetwork, problem: Problem, config: Config) -> None:
        self.actor: Final = actor
        self._problem = problem
        self._config = config
        self._critic = Critic(actor.normalization, config.hidden, config.seed)
        self._values = BatchNetwork(self._critic, problem, _ROWS_AT_ONCE)
        self._logits = BatchNetwork(actor, problem, _ROWS_AT_ONCE)
        self._values.logits(np.zeros((1, observation_dtype(problem).itemsize), np.uint8))
        self._variables = [*actor.trainable_variables]
        if config.value_weight:
            self._variables += self._critic.trainable_variables
        self._optimizer = keras.optimizers.Adam(config.learning_rate, epsilon=config.adam_epsilon)
        self._optimizer.build(self._variables)
        self._kl_weight = tf.Variable(1.0)
        self._step = tf.function(self._take_step, jit_compile=True)

    def batch(self, episodes: Sequence[Episode], rewards: Sequence[float]) -> Batch:
        """The episodes' decisions with their advantages, as the policy and the critic are now."""
        rows = np.concatenate([each.rows for each in episodes])
        config, advantages, returns = self._config, [], []
        values = self._values.logits(rows) if config.value_weight else np.zeros(len(rows))
        ends = np.cumsum([len(each.actions) for each in episodes])
        for reward, value in zip(rewards, np.split(values, ends[:-1]), strict=True):
            steps = np.zeros(len(value))
            steps[slice(None) if config.reward_every_step else slice(-1, None)] = reward
            advantages.append(
                generalized_advantages(steps, value, discount=config.discount, decay=config.decay)
            )
            returns.append(discounted_returns(steps, discount=config.discount))
        return Batch(
            rows=rows,
            actions=np.concatenate([each.actions for each in episodes]),
            advantages=np.concatenate(advantages).astype(np.float32),
            returns=np.concatenate(returns).astype(np.float32),
            old_logits=self._logits.logits(rows),
        )

    def learn(self, batch: Batch, generator: np.random.Generator) -> dict[str, float]:
        """Take an iteration's gradient steps; returns the means of what they measured."""
        sums: dict[str, float] = {}
        steps = self._minibatches(len(batch.rows), generator)
        for index in steps:
            metrics = self._step(
                tf.constant(batch.rows[index]),
                tf.constant(batch.actions[index]),
                tf.constant(batch.advantages[index]),
                tf.constant(batch.returns[index]),
                tf.constant(batch.old_logits[index]),
            )
            for name, value in metrics.items():
                sums[name] = sums.get(name, 0.0) + float(value)
        return {name: value / len(steps) for name, value in sums.items()}

    def arrays(self) -> dict[str, _Array]:
        """Everything that learning goes on from."""
        return {name: variable.numpy() for name, variable in self._state().items()}

    def load(self, arrays: Mapping[str, _Array]) -> None:
        """Go on from what `arrays` gave."""
        for name, variable in self._state().items():
            variable.assign(arrays[name])

    def _state(self) -> dict[str, Any]:
        groups = {
            "actor": self.actor.variables,
            "critic": self._critic.variables,
            "optimizer": self._optimizer.variables,
            "kl_weight": [self._kl_weight],
        }
        return {
            f"{name}.{index}": variable
            for name, variables in groups.items()
            for index, variable in enumerate(variables)
        }

    def _minibatches(self, count: int, generator: np.random.Generator) -> list[_Array]:
        """Indices of whole minibatches; an epoch's last is filled up from its first."""
        size = self._config.minibatch
        each = -(-count // size)
        total = self._config.gradient_steps or self._config.epochs * each
        epochs = [generator.permutation(count) for _ in range(-(-total // each))]
        filled = [np.resize(order, (each, size)) for order in epochs]
        return list(np.concatenate(filled))[:total]

    def _take_step(
        self, rows: Any, actions: Any, advantages: Any, returns: Any, old_logits: Any
    ) -> dict[str, Any]:
        config = self._config
        features = features_of(rows, self._problem)
        with tf.GradientTape() as tape:
            loss, metrics = self._policy_loss(features, actions, advantages, old_logits)
            if config.value_weight:
                error = tf.reduce_mean(tf.square(self._critic(features) - returns))
                loss += config.value_weight * error
                metrics["value/squared_error"] = error
        gradients = tape.gradient(loss, self._variables)
        if config.gradient_norm is not None:
            gradients, _ = tf.clip_by_global_norm(gradients, config.gradient_norm)
        self._optimizer.apply(gradients, self._variables)
        return metrics

    def _policy_loss(
        self, features: Any, actions: Any, advantages: Any, old_logits: Any
    ) -> tuple[Any, dict[str, Any]]:
        config = self._config
        new = tf.nn.log_softmax(self.actor(features))
        old = tf.nn.log_softmax(old_logits)
        ratio = tf.exp(
            tf.gather(new, actions, axis=1, batch_dims=1)
            - tf.gather(old, actions, axis=1, batch_dims=1)
        )
        deviation = tf.math.reduce_std(advantages) + 1e-8
        normal = (advantages - tf.reduce_mean(advantages)) / deviation
        limited = tf.clip_by_value(ratio, 1 - config.clip, 1 + config.clip)
        loss = -tf.reduce_mean(tf.minimum(ratio * normal, limited * normal))
        entropy = -tf.reduce_mean(tf.reduce_sum(tf.exp(new) * new, axis=-1))
        divergence = tf.reduce_mean(tf.reduce_sum(tf.exp(old) * (old - new), axis=-1))
        metrics = {
            "policy/loss": loss,
            "policy/entropy": entropy,
            "policy/kl": divergence,
            "policy/clipped": tf.reduce_mean(tf.cast(tf.abs(ratio - 1) > config.clip, tf.float32)),
        }
        loss -= config.entropy * entropy
        if config.l2:
            kernels = [each for each in self.actor.trainable_variables if each.name == "kernel"]
            loss += config.l2 * tf.add_n([tf.reduce_sum(tf.square(each)) for each in kernels])
        if config.kl_target is not None:
            loss += self._penalty(divergence, config.kl_target)
        return loss, metrics

    def _penalty(self, divergence: Any, target: float) -> Any:
        """A weight that is adapted from step to step, and a steep wall at twice the target."""
        wall = _KL_WALL_WEIGHT * tf.square(tf.maximum(divergence - _KL_WALL * target, 0.0))
        penalty = self._kl_weight * divergence + wall
        is_far = tf.cast(divergence > target * (1 + _KL_TOLERANCE), tf.float32)
        is_near = tf.cast(divergence < target * (1 - _KL_TOLERANCE), tf.float32)
        self._kl_weight.assign(
            tf.clip_by_value(self._kl_weight * _KL_FACTOR ** (is_far - is_near), 1e-15, 1e15)
        )
        return penalty

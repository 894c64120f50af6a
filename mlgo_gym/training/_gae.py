"""Generalised advantage estimation: how much better an action was than expected, step by step.

The estimator of Schulman et al., "High-Dimensional Continuous Control Using Generalized Advantage
Estimation" (2016), equation 16, for one episode that ends::

    error[t]     = reward[t] + discount * value[t + 1] - value[t]        value[T] = 0
    advantage[t] = error[t] + discount * decay * advantage[t + 1]        advantage[T] = 0

With a decay of 0 it is the one-step error; with a decay of 1 the discounted return less the value.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from mlgo_gym.errors import OptionsError

_Array = np.ndarray[Any, Any]

_SHARES: Final = (0.0, 1.0)


def generalized_advantages(
    rewards: _Array, values: _Array, *, discount: float, decay: float
) -> _Array:
    """The advantage of each step of one episode, which ends after its last.

    Args:
        rewards: of each step, ``[T]``.
        values: what was expected before each step, ``[T]``, in the reward's unit.
        discount: what the next step's reward is worth now, from 0 to 1.
        decay: from 0, which trusts the values, to 1, which trusts the rewards.

    Returns:
        ``float64 [T]``, in the reward's unit.

    Raises:
        OptionsError: the lengths differ, or a share is not from 0 to 1.

    >>> ended = np.array([0.0, 0.0, 1.0])
    >>> generalized_advantages(ended, np.zeros(3), discount=1.0, decay=0.5)
    array([0.25, 0.5 , 1.  ])
    """
    if rewards.shape != values.shape or rewards.ndim != 1:
        raise OptionsError(
            f"advantages: expected as many values as rewards, found {values.shape} and "
            f"{rewards.shape}"
        )
    _check("decay", decay)
    following = np.append(values, 0.0)[1:]
    errors = np.asarray(rewards, np.float64) + _checked(discount) * following - values
    return _accumulated(errors, discount * decay)


def discounted_returns(rewards: _Array, *, discount: float) -> _Array:
    """What is still to come, from each step of one episode on: ``float64 [T]``.

    Args:
        rewards: of each step, ``[T]``.
        discount: what the next step's reward is worth now, from 0 to 1.

    Raises:
        OptionsError: the discount is not from 0 to 1.

    >>> discounted_returns(np.array([0.0, 0.0, 1.0]), discount=0.5)
    array([0.25, 0.5 , 1.  ])
    """
    return _accumulated(np.asarray(rewards, np.float64), _checked(discount))


def _accumulated(values: _Array, factor: float) -> _Array:
    """``sums[t] = values[t] + factor * sums[t + 1]``."""
    sums = np.empty(len(values), np.float64)
    total = 0.0
    for index in range(len(values) - 1, -1, -1):
        total = float(values[index]) + factor * total
        sums[index] = total
    return sums


def _checked(discount: float) -> float:
    _check("discount", discount)
    return discount


def _check(name: str, share: float) -> None:
    low, high = _SHARES
    if not low <= share <= high:
        raise OptionsError(f"{name}: expected a number from 0 to 1, found {share!r}")

"""Generalised advantage estimation against closed forms."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from mlgo_gym.errors import OptionsError
from mlgo_gym.training._gae import discounted_returns, generalized_advantages

Array = np.ndarray[Any, Any]

NUMBERS = st.floats(-1e3, 1e3, allow_nan=False, width=32)
SHARES = st.floats(0, 1)


@st.composite
def episodes(draw: st.DrawFn) -> tuple[Array, Array]:
    length = draw(st.integers(0, 40))
    return (
        draw(arrays(np.float64, length, elements=NUMBERS)),
        draw(arrays(np.float64, length, elements=NUMBERS)),
    )


def close(found: Array, expected: Array) -> None:
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-6)


def one_step_errors(rewards: Array, values: Array, discount: float) -> Array:
    return np.array(
        [
            reward + (discount * values[t + 1] if t + 1 < len(values) else 0.0) - values[t]
            for t, reward in enumerate(rewards)
        ]
    )


@given(episodes(), SHARES, SHARES)
def test_it_is_the_sum_that_defines_it(
    episode: tuple[Array, Array], discount: float, decay: float
) -> None:
    """Equation 16 of the paper, written out: the weights are those of a geometric series."""
    rewards, values = episode
    errors = one_step_errors(rewards, values, discount)
    expected = np.array(
        [
            sum((discount * decay) ** later * error for later, error in enumerate(errors[t:]))
            for t in range(len(errors))
        ]
    )
    close(generalized_advantages(rewards, values, discount=discount, decay=decay), expected)


@given(episodes(), SHARES)
def test_no_decay_is_the_one_step_error(episode: tuple[Array, Array], discount: float) -> None:
    rewards, values = episode
    found = generalized_advantages(rewards, values, discount=discount, decay=0)
    close(found, one_step_errors(rewards, values, discount))


@given(episodes(), SHARES)
def test_full_decay_is_the_return_less_the_value(
    episode: tuple[Array, Array], discount: float
) -> None:
    rewards, values = episode
    found = generalized_advantages(rewards, values, discount=discount, decay=1)
    close(found + values, discounted_returns(rewards, discount=discount))


@given(episodes(), SHARES)
def test_a_bandit_has_the_reward(episode: tuple[Array, Array], decay: float) -> None:
    rewards, _ = episode
    nothing = np.zeros_like(rewards)
    close(generalized_advantages(rewards, nothing, discount=0, decay=decay), rewards)
    close(discounted_returns(rewards, discount=0), rewards)


@given(st.floats(-10, 10), st.integers(1, 60), st.floats(0, 0.99), SHARES)
def test_one_reward_at_the_end_fades_geometrically(
    reward: float, length: int, discount: float, decay: float
) -> None:
    rewards = np.zeros(length)
    rewards[-1] = reward
    steps = np.arange(length)[::-1]
    found = generalized_advantages(rewards, np.zeros(length), discount=discount, decay=decay)
    close(found, reward * (discount * decay) ** steps)
    close(discounted_returns(rewards, discount=discount), reward * discount**steps)


@given(st.integers(1, 60), st.floats(0, 0.99))
def test_equal_rewards_are_a_geometric_series(length: int, discount: float) -> None:
    left = length - np.arange(length)
    found = discounted_returns(np.ones(length), discount=discount)
    close(found, (1 - discount**left) / (1 - discount))


@given(episodes(), SHARES)
def test_the_true_values_leave_no_advantage(episode: tuple[Array, Array], decay: float) -> None:
    rewards, _ = episode
    values = discounted_returns(rewards, discount=0.9)
    found = generalized_advantages(rewards, values, discount=0.9, decay=decay)
    close(found, np.zeros_like(rewards))


def test_a_hand_computed_episode() -> None:
    """Errors 1 + 0.5 * 2 - 4 = -2, 2 + 0.5 * 6 - 2 = 3 and 4 - 6 = -2; the factor is 0.25."""
    found = generalized_advantages(
        np.array([1.0, 2.0, 4.0]), np.array([4.0, 2.0, 6.0]), discount=0.5, decay=0.5
    )
    assert found.tolist() == [-2 + 0.25 * (3 + 0.25 * -2), 3 + 0.25 * -2, -2]


def test_another_decay_is_not_the_same() -> None:
    rewards, values = np.array([0.0, 1.0]), np.array([0.5, 0.25])
    short = generalized_advantages(rewards, values, discount=1, decay=0)
    long = generalized_advantages(rewards, values, discount=1, decay=1)
    assert short.tolist() == [-0.25, 0.75]
    assert long.tolist() == [0.5, 0.75]


@pytest.mark.parametrize(
    ("rewards", "values", "discount", "decay", "message"),
    [
        ([0.0], [0.0, 1.0], 1, 1,
         "advantages: expected as many values as rewards, found (2,) and (1,)"),
        ([[0.0]], [[0.0]], 1, 1,
         "advantages: expected as many values as rewards, found (1, 1) and (1, 1)"),
        ([0.0], [0.0], 1.5, 1, "discount: expected a number from 0 to 1, found 1.5"),
        ([0.0], [0.0], 1, -0.5, "decay: expected a number from 0 to 1, found -0.5"),
        ([0.0], [0.0], 1, float("nan"), "decay: expected a number from 0 to 1, found nan"),
    ],
)  # fmt: skip
def test_bad_arguments(
    rewards: list[Any], values: list[Any], discount: float, decay: float, message: str
) -> None:
    with pytest.raises(OptionsError) as caught:
        generalized_advantages(np.array(rewards), np.array(values), discount=discount, decay=decay)
    assert str(caught.value) == message

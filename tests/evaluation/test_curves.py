"""Learning curves of several seeds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mlgo_gym.base import OptionsError
from mlgo_gym.evaluation import learning_curve


def line(figure: Any, label: str) -> Any:
    (found,) = (each for each in figure.axes[0].get_lines() if each.get_label() == label)
    return found


def test_the_line_is_the_interquartile_mean() -> None:
    ends = (-9.0, 0.1, 0.2, 0.3, 9.0)
    figure = learning_curve({"PPO": [[(0, 0.0), (100, end)] for end in ends]})
    mean = line(figure, "PPO, 5 seeds")
    assert mean.get_xdata().tolist() == [0, 100]
    assert np.allclose(mean.get_ydata(), [0, 0.2])


def test_seeds_that_were_looked_at_in_other_places() -> None:
    curves = [[(0, 0.0), (100, 1.0)], [(0, 0.0), (50, 0.0), (80, 0.6)]]
    mean = line(learning_curve({"PPO": curves}), "PPO, 2 seeds")
    assert mean.get_xdata().tolist() == [0, 50, 80]
    assert np.allclose(mean.get_ydata(), [0, 0.25, 0.7])


def test_one_seed_has_no_interval() -> None:
    figure = learning_curve({"PPO": [[(0, 0.0), (1, 1.0)]]})
    assert line(figure, "PPO") is not None
    assert not figure.axes[0].collections


@pytest.mark.parametrize(
    ("agents", "message"),
    [
        ({}, "learning_curve: expected an agent, found none"),
        ({"PPO": []}, "learning_curve: PPO: expected curves of 2 points or more, found one of 0"),
        (
            {"PPO": [[(0, 0.0), (1, 1.0)], [(0, 0.0)]]},
            "learning_curve: PPO: expected curves of 2 points or more, found one of 1",
        ),
        (
            {"PPO": [[(0, 0.0), (1, float("nan"))]]},
            "learning_curve: PPO: expected finite numbers, found NaN or infinity",
        ),
    ],
)
def test_nothing_to_draw(agents: dict[str, list[list[tuple[float, float]]]], message: str) -> None:
    with pytest.raises(OptionsError) as caught:
        learning_curve(agents)
    assert str(caught.value) == message

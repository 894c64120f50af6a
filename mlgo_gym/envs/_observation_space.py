"""Spaces of observations by name: their making and taking apart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np
from gymnasium import spaces

from mlgo_gym.base import OptionsError
from mlgo_gym.problems import Feature, Problem
from mlgo_gym.stream import Observation

ObservationDict = dict[str, np.ndarray[Any, Any]]
"""Features by LLVM's names."""


def dict_space(boxes: Mapping[str, spaces.Box]) -> spaces.Space[ObservationDict]:
    """A ``Dict`` space that keeps the order it is given."""
    # Gymnasium's annotations take Dict for a space of spaces; its members are what is meant.
    return cast("spaces.Space[ObservationDict]", spaces.Dict(list(boxes.items())))


def feature_space(features: Sequence[Feature]) -> spaces.Space[ObservationDict]:
    """A ``Dict`` space of a box for each feature, with its documented bounds, in their order."""
    return dict_space(
        {
            each.spec.name: spaces.Box(each.low, each.high, each.spec.shape, each.spec.dtype.type)
            for each in features
        }
    )


def observed(problem: Problem, asked: Observation | None) -> ObservationDict:
    """Return an observation as environments show it, in new arrays.

    It has the problem's features only. NaN and infinity are replaced by the feature's upper bound.
    Without an observation, all is 0. A policy that was trained in environments sees the same
    elsewhere if it is given this.

    >>> from mlgo_gym.problems import RegallocPriority
    >>> observed(RegallocPriority(), None)["weight"]
    array([0.], dtype=float32)
    """
    layout = problem.layout
    if asked is None:
        return {
            each.spec.name: np.zeros(each.spec.shape, each.spec.dtype) for each in layout.features
        }
    arrays = asked.arrays()
    for extra in layout.extras:
        del arrays[extra.spec.name]
    layout.replace_infinite(arrays)
    return arrays


def boxes_of(space: spaces.Space[Any]) -> dict[str, spaces.Box]:
    """The members of a ``Dict`` space of boxes, in its order."""
    members = space.spaces if isinstance(space, spaces.Dict) else {}
    boxes = {name: box for name, box in members.items() if isinstance(box, spaces.Box)}
    if not boxes or len(boxes) != len(members):
        found = type(space).__name__
        raise OptionsError(
            f"observation space: expected a Dict of Box spaces, found {found}; of these wrappers "
            "FloatVectorObservation comes last"
        )
    return boxes

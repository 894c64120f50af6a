"""Observations in a problem's layout, whatever the LLVM at hand sends, and advice back.

An LLVM may send tensors in another order, and more of them. Policies, models and records see a
problem's observations all the same, in one layout, so that models go on with another LLVM.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import numpy as np

from mlgo_gym.base import EnvironmentSetupError
from mlgo_gym.problems._layout import Layout, dtype_of
from mlgo_gym.problems._problem import Problem
from mlgo_gym.stream import Header, Observation


class Fit:
    """Turns observations of a header into those of a layout, and answers into LLVM's advice.

    Where LLVM sends fewer positions than the layout has, its last position, the live range that
    asks, becomes the layout's last. The positions between are 0, and masked.

    Raises:
        EnvironmentSetupError: LLVM does not send what the layout needs, or sends more positions
            than it has; `Problem.as_sent` is the problem that has them.

    >>> from mlgo_gym.problems import RegallocPriority
    >>> layout = RegallocPriority().layout
    >>> asked = Observation(layout.header, "main", 0, bytes(20))
    >>> Fit(layout, layout.header).observation(asked) is asked
    True
    """

    def __init__(self, layout: Layout, header: Header) -> None:
        layout.check(header)
        self._layout: Final = layout
        self._sent: np.dtype[Any] | None = None
        self._moved: dict[bytes, bytes] = {}
        if header.features != layout.specs:
            self._sent = dtype_of(header.features)
            self._documented = layout.dtype
            self._header = layout.header
            self._moved = self._moved_advice(self._sent)

    def observation(self, asked: Observation) -> Observation:
        """Return LLVM's observation in the layout."""
        if self._sent is None:
            return asked
        row = np.frombuffer(asked.payload, self._sent)
        made = np.zeros(1, self._documented)
        for name in self._documented.names or ():
            values, place = row[name], made[name]
            place[..., : values.shape[-1] - 1] = values[..., :-1]
            place[..., -1] = values[..., -1]
        return Observation(self._header, asked.context, asked.index, made.tobytes(), asked)

    def advice(self, advice: bytes) -> bytes:
        """Return the raw tensor of an answer as LLVM takes it."""
        return self._moved.get(advice, advice)

    def _moved_advice(self, sent: np.dtype[Any]) -> dict[bytes, bytes]:
        """The last position's number as the layout has it, and as LLVM has it."""
        wide = next((each.spec for each in self._layout.features if each.is_wide), None)
        if wide is None:
            return {}
        found = sent[wide.name].shape[-1]
        if found > wide.shape[-1]:
            raise EnvironmentSetupError(
                f"{self._layout.name}: expected at most {wide.shape[-1]} positions, which is what "
                f"models for it take, found {found}; as_sent is the problem that has them"
            )
        encode = self._layout.advice.encode
        return {encode(wide.shape[-1] - 1): encode(found - 1)}


def record_of(problem: Problem, observations: Iterable[Observation]) -> tuple[Layout, list[bytes]]:
    """Return the layout of a record of observations with all that LLVM sent, and the raw tensors.

    Answers to the problem are answers in that layout; where nothing was asked, it is the problem's.
    """
    sent = list(observations)
    if not sent:
        return problem.layout, []
    layout = problem.recorded_layout(sent[0].header)
    fit = Fit(layout, sent[0].header)
    return layout, [fit.observation(each).payload for each in sent]

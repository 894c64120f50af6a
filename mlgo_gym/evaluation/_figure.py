"""Plots need matplotlib, which the extra ``plot`` brings."""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING, Final

from corpus_tools.printable import printable
from mlgo_gym.base import EnvironmentSetupError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from mlgo_gym.evaluation._summary import RelativeChange

WIDTH: Final = 9.0
"""The width of figures, in inches."""
NOTE: Final = "change against LLVM's default, in percent (left is better)"
NO_PLOTS: Final = "plots: need matplotlib; run: pip install 'mlgo-gym[plot]'"
"""Why there are none, where `can_plot` is false."""


def can_plot() -> bool:
    """Whether matplotlib is installed; importing it is left to who plots."""
    return importlib.util.find_spec("matplotlib") is not None


def check_can_plot() -> None:
    if not can_plot():
        raise EnvironmentSetupError(NO_PLOTS)


def new_figure(width: float, height: float) -> Figure:
    """An empty figure of so many inches."""
    check_can_plot()
    from matplotlib.figure import Figure  # noqa: PLC0415 - slow to import, needed only here

    return Figure(figsize=(width, height), layout="constrained")


def plot_label(name: str) -> str:
    r"""A name as a plot shows it: dollars would be mathematics, and ``_`` in front hides it.

    >>> print(plot_label("a$b$"))
    a\$b\$
    """
    shown = printable(name).replace("$", r"\$")
    return f" {shown}" if shown.startswith("_") else shown


def reach(change: RelativeChange) -> tuple[float, float]:
    """How far the interval goes to the left and to the right, in percent."""
    low, high = change.interval or (change.value, change.value)
    return max(100 * (change.value - low), 0.0), max(100 * (high - change.value), 0.0)

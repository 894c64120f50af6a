"""Performance profiles: how many runs are above each score."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mlgo_gym.evaluation import new_figure, plot_label
from mlgo_gym.lab.bench._table import Table, profiles

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_MOST: Final = 10
"""So many of the best are drawn: as many colours as can be told apart."""


def profile_figure(made: Table) -> Figure:
    """Draw the performance profiles of a table's first submissions."""
    thresholds, shares = profiles(made)
    figure = new_figure(8, 4.5)
    axes = figure.add_subplot()
    for name in list(shares)[:_MOST]:
        axes.step(thresholds, shares[name], where="post", label=plot_label(name))
    axes.axvline(0, color="black", linewidth=0.8, linestyle="--")
    axes.set_xlabel(f"normalised score (0: {made.suite.baseline}, 100: the best known)")
    axes.set_ylabel("share of runs above it")
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)
    return figure

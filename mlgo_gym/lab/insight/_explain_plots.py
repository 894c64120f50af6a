"""Plots of what an inlining model looks at."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from mlgo_gym.evaluation import new_figure, plot_label
from mlgo_gym.lab.insight._explain import Importance, Questions, share_inlined
from mlgo_gym.problems import DEFAULT_ADVICE
from mlgo_gym.runners import MLModelRunner

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COST: Final = "cost_estimate"
"""The feature that LLVM's own heuristic compares with its threshold."""

_SHOWN: Final = 20
_NEAR: Final = (-100.0, 250.0)
"""Costs between which answers may turn; a static function's only call has -15,000 and more."""

_GRID: Final = 71
_SAMPLE: Final = 1000
_MAP_GRID: Final = 36
_MAP_ROWS: Final = 12
_MAP_SAMPLE: Final = 200
_FEWEST: Final = 20
_MOST_BINS: Final = 30


def importance_plot(importances: Sequence[Importance]) -> Figure:
    """The features that change most decisions, as bars with the repeats' standard deviations."""
    shown = [each for each in importances if each.changed][:_SHOWN]
    figure = new_figure(8, 1.5 + 0.28 * len(shown))
    axes = figure.add_subplot()
    axes.barh(
        range(len(shown)),
        [100 * each.changed for each in shown],
        xerr=[100 * each.deviation for each in shown],
        color="tab:blue",
    )
    axes.set_yticks(range(len(shown)), [plot_label(each.feature) for each in shown])
    axes.invert_yaxis()
    axes.grid(axis="x", alpha=0.3)
    axes.set_xlabel("decisions that change when the feature is permuted, in percent")
    return figure


def boundary_plot(runner: MLModelRunner, recorded: Questions, other: str, seed: int) -> Figure:
    """Plot where a model's answer changes over `COST`, and with one more feature varied."""
    figure = new_figure(13, 5)
    left, right = figure.subplots(1, 2)
    _curves(left, runner, recorded, seed)
    _map(right, runner, recorded, other, seed)
    return figure


def _curves(axes: Axes, runner: MLModelRunner, recorded: Questions, seed: int) -> None:
    costs = recorded.values[COST]
    grid = _cost_grid(costs, _GRID)
    sample = recorded.sample(_SAMPLE, seed).values
    axes.plot(
        grid,
        [100 * share_inlined(runner, sample, {COST: int(cost)}) for cost in grid],
        color="tab:blue",
        label="model, if all calls had this cost",
    )
    answers = {"model": recorded.decisions, "LLVM's default": recorded.values[DEFAULT_ADVICE]}
    for (name, values), colour in zip(answers.items(), ("tab:orange", "black"), strict=True):
        centres, shares = _by_bin(costs, values != 0, grid[0], grid[-1])
        axes.plot(centres, shares, "o-", markersize=3, color=colour, label=f"{name}, as asked")
    axes.set_xlabel(f"{COST} (LLVM's inline cost)")
    axes.set_ylabel("calls inlined, in percent")
    axes.set_ylim(-3, 103)
    axes.grid(alpha=0.3)
    axes.legend()
    axes.set_title(f"{len(costs):,} recorded decisions")


def _map(axes: Axes, runner: MLModelRunner, recorded: Questions, other: str, seed: int) -> None:
    costs = _cost_grid(recorded.values[COST], _MAP_GRID)
    quantiles = np.linspace(0, 1, _MAP_ROWS)
    others = np.unique(np.quantile(recorded.values[other], quantiles, method="nearest"))
    sample = recorded.sample(_MAP_SAMPLE, seed).values
    shares = [
        [100 * share_inlined(runner, sample, {COST: int(x), other: y.item()}) for x in costs]
        for y in others
    ]
    rows = range(len(others))
    mesh = axes.pcolormesh(costs, rows, shares, cmap="RdBu_r", vmin=0, vmax=100, shading="nearest")
    if np.ptp(shares) and min(np.shape(shares)) > 1:
        axes.contour(costs, rows, shares, levels=[50], colors="black")
    axes.set_yticks(rows, [f"{value:,}" for value in others])
    axes.set_xlabel(COST)
    axes.set_ylabel(f"{plot_label(other)}, at its quantiles")
    axes.set_title(f"calls inlined by the model, if all had these {COST} and {plot_label(other)}")
    axes.figure.colorbar(mesh, ax=axes, label="percent; the line is 50")


def _cost_grid(costs: NDArray[Any], count: int) -> NDArray[Any]:
    """Whole numbers over the middle 98 % of the costs, as far as they are near the threshold."""
    low, high = np.clip(np.percentile(costs, (1, 99)), *_NEAR)
    return np.unique(np.rint(np.linspace(low, high, count)).astype(np.int64))


def _by_bin(
    costs: NDArray[Any], inlined: NDArray[Any], low: int, high: int
) -> tuple[NDArray[Any], NDArray[Any]]:
    """The mean cost of bins of about as many calls each, and the percentage that is inlined."""
    shown = (costs >= low) & (costs <= high)
    costs, inlined = costs[shown], inlined[shown]
    bins = np.clip(len(costs) // _FEWEST, 1, _MOST_BINS)
    edges = np.unique(np.quantile(costs, np.linspace(0, 1, bins + 1)[1:-1], method="nearest"))
    places = np.searchsorted(edges, costs, "right")
    counts = np.bincount(places)
    known = counts > 0
    centres, shares = (np.bincount(places, each)[known] for each in (costs, inlined))
    return centres / counts[known], 100 * shares / counts[known]

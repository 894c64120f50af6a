"""Plots of evaluations, and learning curves of several seeds, by matplotlib (extra ``plot``)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from mlgo_gym.base import OptionsError
from mlgo_gym.evaluation._figure import NOTE, WIDTH, new_figure, plot_label, reach
from mlgo_gym.evaluation._summary import LEVEL, RESAMPLES, Scored, Statistic
from mlgo_gym.rollout import BASELINE

if TYPE_CHECKING:
    from matplotlib.figure import Figure


_LEAST_POINTS: Final = 2
_LINEAR_PERCENT: Final = 10.0
_PERCENT_TICKS: Final = (-50, -20, -10, -5, -2, 0, 2, 5, 10, 20, 50, 100, 200, 500, 1000)


def learning_curve(
    agents: Mapping[str, Sequence[Sequence[tuple[float, float]]]],
    *,
    x_label: str = "decisions",
    y_label: str = "mean reward on unseen modules (higher is better)",
    seed: int = 0,
) -> Figure:
    """Draw rewards over training, each agent with its seeds.

    The line is the interquartile mean over seeds, and the band its 95 % interval by bootstrap over
    seeds (Agarwal and others, "Deep Reinforcement Learning at the Edge of the Statistical
    Precipice", 2021). Seeds are thin lines. A reward of 0 is LLVM's own heuristic.

    Args:
        agents: by name, a curve for each seed; a curve has points ``(decisions, reward)``.
        x_label: the name of the first numbers.
        y_label: the name of the second numbers.
        seed: of the bootstrap.

    Raises:
        OptionsError: there is no agent, or a curve has fewer than two points or one that is not
            finite.
        EnvironmentSetupError: matplotlib is missing.

    >>> curves = [[(0, -0.3), (1000, 0.01)], [(0, -0.3), (1000, 0.03)]]
    >>> figure = learning_curve({"PPO": curves})
    >>> figure.axes[0].get_xlabel()
    'decisions'
    """
    if not agents:
        raise OptionsError("learning_curve: expected an agent, found none")
    random = np.random.default_rng(seed)
    figure = new_figure(WIDTH, 4.5)
    axes = figure.add_subplot()
    for index, (name, curves) in enumerate(agents.items()):
        colour = f"C{index}"
        places, rewards = _on_one_axis(name, curves)
        for row in rewards:
            axes.plot(places, row, color=colour, alpha=0.3, linewidth=0.8)
        title = f"{name}, {len(curves)} seeds" if len(curves) > 1 else name
        axes.plot(places, interquartile_mean(rewards), color=colour, label=plot_label(title))
        if len(curves) > 1:
            drawn = random.integers(len(curves), size=(RESAMPLES, len(curves)))
            means = np.array([interquartile_mean(rewards[rows]) for rows in drawn])
            low, high = np.percentile(means, LEVEL, axis=0)
            axes.fill_between(places, low, high, color=colour, alpha=0.2, linewidth=0)
    axes.axhline(0, color="black", linewidth=0.8, linestyle="--", label="LLVM's own heuristic")
    axes.set_xlabel(x_label)
    axes.set_ylabel(y_label)
    axes.grid(alpha=0.3)
    axes.legend()
    return figure


def _on_one_axis(
    name: str, curves: Sequence[Sequence[tuple[float, float]]]
) -> tuple[NDArray[Any], NDArray[Any]]:
    """The places where some seed was looked at, as far as all go, and each seed's rewards there."""
    arrays = [np.array(curve, float).reshape(-1, 2) for curve in curves]
    shortest = min(map(len, arrays), default=0)
    if shortest < _LEAST_POINTS:
        raise OptionsError(
            f"learning_curve: {name}: expected curves of {_LEAST_POINTS} points or more, found "
            f"one of {shortest}"
        )
    if not all(np.isfinite(each).all() for each in arrays):
        raise OptionsError(
            f"learning_curve: {name}: expected finite numbers, found NaN or infinity"
        )
    first, last = max(each[0, 0] for each in arrays), min(each[-1, 0] for each in arrays)
    places = np.unique(np.concatenate([each[:, 0] for each in arrays]))
    places = places[(places >= first) & (places <= last)]
    return places, np.array([np.interp(places, each[:, 0], each[:, 1]) for each in arrays])


def interquartile_mean(rows: NDArray[Any]) -> NDArray[Any]:
    """The mean over rows of the middle half of each column, without the lowest and highest quarter.

    >>> float(interquartile_mean(np.array([0.0, 1.0, 2.0, 30.0])))
    1.5
    """
    cut = len(rows) // 4
    middle = np.sort(rows, axis=0)[cut : len(rows) - cut]
    return np.asarray(middle.mean(axis=0))


def plots_of(scored: Scored) -> dict[str, Figure]:
    """The plots by the names of their files: totals, packages if there are several, modules."""
    plots = {"totals": _totals(scored)}
    if len(scored.packages) > 1:
        plots["packages"] = _packages(scored)
    return plots | {"modules": _modules(scored)}


def _totals(scored: Scored) -> Figure:
    """Every total with its interval, by language."""
    groups = {"all": scored}
    if len(scored.languages) > 1:
        groups |= {name: scored.of_language(name) for name in scored.languages}
    statistics = scored.statistics()
    rows = {
        f"{statistic.title}, {name}": (group, statistic)
        for statistic in statistics
        for name, group in groups.items()
    }
    return _intervals(scored, rows, f"{len(scored.modules)} modules of all packages")


def _packages(scored: Scored) -> Figure:
    statistic = scored.main_statistic
    packages = {name: scored.of_package(name) for name in scored.packages}
    first = scored.policies[0]
    order = sorted(packages, key=lambda name: packages[name].change(statistic, first).value)
    rows = {
        f"{name} ({len(packages[name].modules)})": (packages[name], statistic) for name in order
    }
    return _intervals(scored, rows, f"{statistic.title} by package (number of modules)")


def _intervals(scored: Scored, rows: Mapping[str, tuple[Scored, Statistic]], title: str) -> Figure:
    """A row for each change: one point a policy, and its 95 % interval."""
    figure = new_figure(WIDTH, 1.5 + 0.16 * len(rows) * (1 + len(scored.policies)))
    axes = figure.add_subplot()
    for index, policy in enumerate(scored.policies):
        changes = [group.change(statistic, policy) for group, statistic in rows.values()]
        offset = 0.7 * ((index + 0.5) / len(scored.policies) - 0.5)
        axes.errorbar(
            [100 * each.value for each in changes],
            [row + offset for row in range(len(rows))],
            xerr=np.transpose([reach(each) for each in changes]),
            fmt="o",
            markersize=4,
            capsize=2,
            label=plot_label(policy),
        )
    axes.set_yticks(range(len(rows)), list(map(plot_label, rows)))
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.axvline(0, color="black", linewidth=0.8)
    axes.grid(axis="x", alpha=0.3)
    axes.set_xlabel(NOTE)
    axes.set_title(f"{plot_label(title)}, 95 % bootstrap intervals")
    axes.legend()
    return figure


def _modules(scored: Scored) -> Figure:
    """Every module by its size: its own text or score."""
    statistic = scored.module_statistic
    baselines = scored.values(statistic.key, BASELINE)
    known = baselines > 0
    figure = new_figure(WIDTH, 5.5)
    axes = figure.add_subplot()
    for policy in scored.policies:
        changes = 100 * (scored.values(statistic.key, policy)[known] / baselines[known] - 1)
        axes.scatter(baselines[known], changes, s=14, alpha=0.6, label=plot_label(policy))
    axes.set_xscale("log")
    axes.set_yscale("symlog", linthresh=_LINEAR_PERCENT)
    low, high = axes.get_ylim()
    ticks = [each for each in _PERCENT_TICKS if low <= each <= high]
    axes.set_yticks(ticks, [f"{each:+g}" if each else "0" for each in ticks])
    axes.axhline(0, color="black", linewidth=0.8)
    axes.grid(alpha=0.3)
    axes.set_xlabel(f"{plot_label(statistic.title)} of the module under LLVM's default")
    axes.set_ylabel("change in percent (below 0 is better)")
    axes.set_title(f"{int(known.sum())} modules by {plot_label(statistic.title)}")
    axes.legend()
    return figure

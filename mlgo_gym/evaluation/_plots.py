"""Plots of an evaluation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import numpy as np

from mlgo_gym.evaluation._figure import NOTE, WIDTH, new_figure, plot_label, reach
from mlgo_gym.evaluation._summary import Scored, Statistic
from mlgo_gym.rollout import BASELINE

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_LINEAR_PERCENT: Final = 10.0
_PERCENT_TICKS: Final = (-50, -20, -10, -5, -2, 0, 2, 5, 10, 20, 50, 100, 200, 500, 1000)


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

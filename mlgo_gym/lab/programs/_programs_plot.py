"""A plot of programs: their size against what else was measured."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from mlgo_gym.evaluation import NOTE, WIDTH, new_figure, plot_label, reach
from mlgo_gym.lab.programs._program_scores import ProgramScores, program_change

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def programs_plot(
    scores: Sequence[ProgramScores], policies: Sequence[str], meters: Sequence[str]
) -> Figure:
    """Each policy's programs, size against what else was measured; crosses are the means."""
    known = [each for each in scores if not each.error]
    base = "size" if "size" in meters else meters[0]
    others = [meter for meter in meters if meter != base]
    figure = new_figure(WIDTH, 4.5 * len(others))
    for place, meter in enumerate(others):
        axes = figure.add_subplot(len(others), 1, place + 1)
        for number, policy in enumerate(policies):
            across, up = (
                [100 * (each.ratio(policy, name) - 1) for each in known] for name in (base, meter)
            )
            axes.scatter(across, up, s=16, alpha=0.6, color=f"C{number}", label=plot_label(policy))
            size, speed = (program_change(known, policy, name) for name in (base, meter))
            axes.errorbar(
                [100 * size.value],
                [100 * speed.value],
                xerr=np.transpose([reach(size)]),
                yerr=np.transpose([reach(speed)]),
                fmt="x",
                color=f"C{number}",
                capsize=3,
            )
        axes.axhline(0, color="black", linewidth=0.8)
        axes.axvline(0, color="black", linewidth=0.8)
        axes.grid(alpha=0.3)
        axes.set_xlabel(f"{plot_label(base)}: {NOTE}")
        axes.set_ylabel(f"{plot_label(meter)}, percent (below 0 is better)")
        axes.legend()
    figure.suptitle(f"programs: {len(known)}; means with 95 % bootstrap intervals")
    return figure

"""Plots: the numbers that are in them."""

from __future__ import annotations

import numpy as np
import pytest
from matplotlib.container import ErrorbarContainer

from mlgo_gym.evaluation._plots import plots_of
from mlgo_gym.evaluation._summary import STATISTICS, Scored
from mlgo_gym.rollout._linked_text import Code
from tests.evaluation.test_summary import module


def test_what_is_drawn() -> None:
    """A module by what it was, where it was something; a total with its interval."""
    sizes = {"half": (1000, 500), "new": (0, 65), "more": (200, 250)}
    scores = [
        module("p", name, Code(before, {}), Code(after, {}))
        for name, (before, after) in sizes.items()
    ]
    scored = Scored(scores, ["mine"])
    plots = plots_of(scored)
    assert set(plots) == {"totals", "modules"}
    rows = len(plots["totals"].axes[0].get_yticklabels())
    assert plots["totals"].get_size_inches().tolist() == pytest.approx([9, 1.5 + 0.32 * rows])
    (mine,) = plots["modules"].axes[0].collections
    assert np.asarray(mine.get_offsets()).tolist() == [[1000, -50], [200, 25]]
    axes = plots["modules"].axes[0]
    assert axes.get_title() == "2 modules by text"
    low, high = axes.get_ylim()
    assert -100 < low < -50
    assert 25 < high < 50
    ticks = ["-50", "-20", "-10", "-5", "-2", "0", "+2", "+5", "+10", "+20"]
    assert [each.get_text() for each in axes.get_yticklabels()] == ticks
    text = next(each for each in STATISTICS if each.key == "text")
    change = scored.change(text, "mine")
    (bars,) = plots["totals"].axes[0].containers
    assert isinstance(bars, ErrorbarContainer)
    row = [each.get_text() for each in plots["totals"].axes[0].get_yticklabels()].index("text, all")
    points, _, (lines,) = bars.lines
    ends = 100 * np.array(change.interval)
    drawn = np.asarray(points.get_xdata(), float)
    np.testing.assert_allclose(drawn[row], 100 * change.value)
    np.testing.assert_allclose(np.array(lines.get_segments())[row, :, 0], ends)

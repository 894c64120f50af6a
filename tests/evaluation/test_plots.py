"""Plots: the numbers that are in them."""

from __future__ import annotations

import numpy as np
from matplotlib.container import ErrorbarContainer

from mlgo_gym.evaluation._plots import plots_of
from mlgo_gym.evaluation._scores import BASELINE, ModuleScores
from mlgo_gym.evaluation._summary import STATISTICS, Scored
from mlgo_gym.scoring._linked_text import Code


def test_what_is_drawn() -> None:
    """A module by what it was, where it was something; a total with its interval."""
    sizes = {"half": (1000, 500, 400), "new": (0, 65, 65), "more": (200, 250, None)}
    scores = [
        ModuleScores(
            "p",
            name,
            "C",
            decisions={"mine": 1},
            code={BASELINE: Code(before, {}), "mine": Code(after, {})},
            oracle_text_bytes=found,
        )
        for name, (before, after, found) in sizes.items()
    ]
    scored = Scored(scores, ["mine"])
    plots = plots_of(scored)
    assert set(plots) == {"totals", "modules"}
    mine, oracle = plots["modules"].axes[0].collections
    assert np.asarray(mine.get_offsets()).tolist() == [[1000, -50], [200, 25]]
    assert np.asarray(oracle.get_offsets()).tolist() == [[1000, -60]]
    assert plots["modules"].axes[0].get_title() == "2 modules by text"
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

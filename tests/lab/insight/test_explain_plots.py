"""Plots of explanations: the numbers that are in them."""

from __future__ import annotations

import numpy as np
import pytest
from matplotlib.collections import QuadMesh
from matplotlib.container import ErrorbarContainer
from matplotlib.patches import Rectangle

from mlgo_gym.lab.insight._explain import Importance, Questions, boundary_plot, importance_plot
from mlgo_gym.problems._inlining_for_size import InliningForSize
from mlgo_gym.runners._base import ScriptedRunner


def test_importances_as_bars() -> None:
    """Twenty at most, in percent, and none that changes nothing."""
    found = [Importance(f"f{each}", each / 100, each / 200, 0.0, 2) for each in range(30, -1, -1)]
    figure = importance_plot(found)
    assert figure.get_size_inches().tolist() == pytest.approx([8, 7.1])
    (axes,) = figure.axes
    percent = pytest.approx(np.arange(30, 10, -1))
    assert [each.get_text() for each in axes.get_yticklabels()] == [f"f{30 - i}" for i in range(20)]
    bars = next(each for each in axes.containers if isinstance(each, ErrorbarContainer))
    (lines,) = bars.lines[2]
    spans = np.array(lines.get_segments())[:, :, 0]
    assert np.array([each.get_width() for each in axes.patches if isinstance(each, Rectangle)]) == (
        percent
    )
    assert spans[:, 1] - spans[:, 0] == percent
    assert axes.yaxis_inverted()
    assert len(importance_plot(found[25:]).axes[0].patches) == 5


@pytest.mark.e2e
def test_where_a_model_turns() -> None:
    """It inlines what costs less than 52, or than 102 where there are two users."""
    values = np.zeros(120, InliningForSize().layout.dtype)
    costs, users = np.linspace(-150, 300, 120).astype(np.int64), np.arange(120) % 3
    values["cost_estimate"] = costs
    values["callee_users"] = users
    values["inlining_default"] = costs < 225
    decisions = costs < np.where(users == 2, 102, 52)
    recorded = Questions(values, decisions.astype(np.int64), (120,), ())
    with ScriptedRunner(
        lambda inputs: inputs["cost_estimate"] < (102 if inputs["callee_users"] == 2 else 52),
        InliningForSize().layout.specs,
        InliningForSize.advice,
    ) as runner:
        left, right = boundary_plot(runner, recorded, "callee_users", 3).axes[:2]
    model, asked, default = (np.asarray(line.get_xydata()) for line in left.lines)
    near = range(-100, 251, 5)
    answers = [100 if cost < 52 else 100 / 3 if cost < 102 else 0 for cost in near]
    np.testing.assert_allclose(model, np.transpose([near, answers]))
    shown = (costs >= -100) & (costs <= 250)
    starts = [round(quarter * (shown.sum() - 1) / 4) for quarter in (1, 2, 3)]
    for drawn, inlined in ((asked, decisions), (default, costs < 225)):
        bins = [np.split(each[shown], starts) for each in (costs, 100 * inlined)]
        expected = np.transpose([[part.mean() for part in each] for each in bins])
        np.testing.assert_allclose(drawn, expected)
    assert left.get_title() == "120 recorded decisions"
    (mesh,) = (each for each in right.collections if isinstance(each, QuadMesh))
    shares = np.asarray(mesh.get_array()).reshape(3, 36)
    places = np.arange(-100, 251, 10)
    assert shares.tolist() == [list(100 * (places < limit)) for limit in (52, 52, 102)]
    assert [each.get_text() for each in right.get_yticklabels()] == ["0", "1", "2"]

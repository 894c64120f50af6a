"""Summaries of scores that are easy to add up by hand."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from mlgo_gym.cli._times import time_table
from mlgo_gym.cli.show._evaluation import evaluation_page, evaluation_tables
from mlgo_gym.cli.show._grid import Cell, Grid
from mlgo_gym.errors import ModuleError
from mlgo_gym.evaluation._evaluate import ModuleTimes, link_change, time_changes
from mlgo_gym.evaluation._summary import STATISTICS, ModuleScores, RelativeChange, Scored, Statistic
from mlgo_gym.rollout._allocation import GeometricMean
from mlgo_gym.rollout._linked_text import Code
from mlgo_gym.rollout._rollout import BASELINE, Failure

BY_KEY = {each.key: each for each in STATISTICS}


def module(
    package: str, name: str, before: Code, after: Code, language: str = "C++"
) -> ModuleScores:
    return ModuleScores(
        package, name, language, decisions={"mine": 3}, code={BASELINE: before, "mine": after}
    )


@pytest.fixture
def scored() -> Scored:
    return Scored(
        [
            module("p", "a", Code(1000, {"f": 100}), Code(900, {})),
            module("p", "b", Code(600, {"f": 100}), Code(600, {"f": 100})),
            module("q", "c", Code(400, {}), Code(500, {}), "C"),
            ModuleScores("q", "d", "C", errors=(Failure(ModuleError("d", "no")),)),
        ],
        ["mine"],
    )


def change(scored: Scored, key: str) -> float:
    return scored.change(BY_KEY[key], "mine").value


def test_totals(scored: Scored) -> None:
    assert [each.module for each in scored.modules] == ["a", "b", "c"]
    assert scored.baseline(BY_KEY["text"]) == 2000
    assert scored.total(BY_KEY["text"], "mine") == 2000
    assert change(scored, "text") == 0
    assert scored.baseline(BY_KEY["linked_text"]) == 900 + 500 + 100 + 400
    assert math.isclose(change(scored, "linked_text"), 100 / 1900)
    ratios = (900 / 1000, 600 / 600, 500 / 400)
    assert math.isclose(change(scored, "text_mean"), math.prod(ratios) ** (1 / 3) - 1)


def test_each_package_counts_the_same(scored: Scored) -> None:
    """However large: p has 1,500 linked bytes, which stay, and q has 400, which become 500."""
    mean = BY_KEY["linked_text_package_mean"]
    found = scored.change(mean, "mine")
    assert scored.baseline(mean) == 2
    assert math.isclose(found.value, math.sqrt(500 / 400) - 1)
    assert found.interval is not None
    assert found.interval[0] < 0 < found.value
    assert math.isclose(found.interval[1], 500 / 400 - 1)  # of samples in which q is all there is
    assert mean not in scored.of_package("p").statistics()


def test_parts_add_up(scored: Scored) -> None:
    linked = BY_KEY["linked_text"]
    for groups in (
        [scored.of_package(name) for name in scored.packages],
        [scored.of_language(name) for name in scored.languages],
    ):
        assert math.isclose(
            sum(each.total(linked, "mine") for each in groups), scored.total(linked, "mine")
        )
    of_one = scored.of_package("q").change(BY_KEY["text"], "mine")
    assert of_one.value == 0.25
    assert of_one.interval is None


def test_intervals_hold_the_change_and_repeat() -> None:
    scores = [
        module("pqr"[number % 3], str(number), Code(1000, {}), Code(900 + number**2, {}))
        for number in range(20)
    ]
    scored = Scored(scores, ["mine"])
    found = scored.change(BY_KEY["text"], "mine")
    assert found.interval is not None
    low, high = found.interval
    assert low < found.value < high
    assert Scored(scores, ["mine"]).change(BY_KEY["text"], "mine") == found
    other = Scored(scores, ["mine"], seed=1).change(BY_KEY["text"], "mine")
    assert other.value == found.value
    assert other.interval != found.interval


def test_worse_takes_both_limits() -> None:
    sizes = {
        "much": (1000, 1065), "few bytes": (1000, 1064), "small share": (7000, 7070),
        "better": (1000, 900), "most": (1000, 2000), "new": (0, 65),
    }  # fmt: skip
    scored = Scored(
        [module("p", name, Code(old, {}), Code(new, {})) for name, (old, new) in sizes.items()],
        ["mine"],
    )
    worse = scored.worse("mine")
    assert [(each.scores.module, each.baseline, each.value) for each in worse] == [
        ("most", 1000, 2000), ("much", 1000, 1065), ("new", 0, 65),
    ]  # fmt: skip


def test_scores_of_allocation() -> None:
    scores = [
        ModuleScores(
            "p",
            name,
            "C",
            decisions={"mine": 1},
            costs={BASELINE: before, "mine": after},
            functions={"mine": GeometricMean(ratio, count, left_out=0)},
        )
        for name, before, after, ratio, count in (
            ("a", 100.0, 50.0, 0.5, 4),
            ("b", 900.0, 1800.0, 2.0, 1),
            ("empty", 0.0, 0.0, 1.0, 0),
        )
    ]
    scored = Scored(scores, ["mine"])
    assert [each.key for each in scored.statistics()] == [
        "score_mean",
        "score",
        "score_module_mean",
    ]
    assert scored.main_statistic.key == "score_mean"
    assert math.isclose(change(scored, "score"), 0.85)
    assert math.isclose(change(scored, "score_mean"), 0.5 ** (3 / 5) - 1)
    assert abs(change(scored, "score_module_mean")) < 1e-12
    assert scored.baseline(BY_KEY["score_mean"]) == 5
    assert scored.baseline(BY_KEY["score_module_mean"]) == 2
    assert [each.scores.module for each in scored.worse("mine")] == ["b"]


def test_modules_without_code_before_have_no_ratio() -> None:
    """A total counts them; a mean leaves them out, and those that became nothing."""
    scored = Scored(
        [
            module("p", "new", Code(0, {}), Code(65, {})),
            module("p", "gone", Code(100, {}), Code(0, {})),
            module("p", "half", Code(1000, {}), Code(500, {})),
        ],
        ["mine"],
    )
    assert scored.baseline(BY_KEY["text_mean"]) == 1
    assert math.isclose(change(scored, "text_mean"), -0.5)
    assert math.isclose(change(scored, "text"), 565 / 1100 - 1)
    nothing = Scored([module("p", "new", Code(0, {}), Code(65, {}))] * 2, ["mine"])
    for key in ("text", "text_mean", "linked_text"):
        found = nothing.change(BY_KEY[key], "mine")
        assert (found.value, found.interval) == (0, None)


@pytest.mark.parametrize("statistic", STATISTICS, ids=lambda each: each.key)
def test_nothing_at_all(statistic: Statistic) -> None:
    scored = Scored([], ["mine"])
    assert scored.statistics() == []
    assert scored.change(statistic, "mine").interval is None
    assert scored.worse("mine") == []


def test_what_is_printed_of_many_modules() -> None:
    """Twenty of those that got worse, and every module where that is asked for."""
    code = [Code(1000 + number, {}) for number in range(23)]
    scores = [
        replace(
            module("p", f"m{number}", each, Code(each.text_bytes + 100 + number, {})),
            settings={"problem": "P"},
        )
        for number, each in enumerate(code)
    ]
    found = {
        modules: list(evaluation_tables(Scored(scores, ["mine"]), modules=modules))
        for modules in (False, True)
    }
    for printed in found.values():
        assert "mine: 23 of 23 modules worse by more than 1 % and 64 bytes:" in printed
        assert "and 3 more; --json has all." in printed
    (extra,) = (each for each in found[True] if each not in found[False])
    assert isinstance(extra, Grid)
    assert [_text(row[0]) for row in extra.rows] == [each.module for each in scores]
    assert [_text(row[-1]) for row in extra.rows][:2] == ["+10.0 %", "+10.1 %"]
    assert "+10.1 %" in evaluation_page(Scored(scores, ["mine"]), {}).decode()
    few = list(evaluation_tables(Scored(scores[:20], ["mine"]), modules=False))
    assert not [each for each in few if isinstance(each, str) and "more;" in each]


def _text(cell: Cell | str) -> str:
    return cell if isinstance(cell, str) else cell.text


def test_nothing_measured_is_no_change() -> None:
    failed = ModuleTimes("p", "a", {}, ModuleError("a", "no"))
    found = time_changes([failed], "mine")
    assert (found.total.to_json(), found.median) == ({"change": None, "interval": None}, None)
    ((_, _, total, median),) = time_table({"mine": found}).rows
    assert isinstance(total, Cell)
    assert (total.text, median) == ("none", "none")
    assert link_change([], "mine", "icf").to_json() == {"change": None, "interval": None}


def test_the_time_of_one_module_has_no_interval() -> None:
    """Others of its kind are not known; of two there is one."""
    first = ModuleTimes("p", "a", {BASELINE: 1.0, "mine": 1.5})
    assert time_changes([first], "mine").total == RelativeChange(0.5, None)
    second = ModuleTimes("p", "b", {BASELINE: 1.0, "mine": 1.0})
    assert time_changes([first, second], "mine").total.interval == (0.0, 0.5)

"""What is chosen of LLVM's own heuristic, a model, and one that was tuned; and what is built."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from mlgo_gym.cli import Cell
from mlgo_gym.corpus._packages import ModuleKey
from mlgo_gym.errors import InputError
from mlgo_gym.evaluation._summary import ModuleScores
from mlgo_gym.lab.tuning._tuned import (
    BUILT,
    ENOUGH,
    TUNED,
    TuneChoice,
    Tuned,
    against_start,
    choose,
)
from mlgo_gym.lab.tuning.commands._show_tuned import built, parts_grid
from mlgo_gym.rollout._linked_text import Code
from mlgo_gym.rollout._rollout import Failure

Sizes = Mapping[str, int]


def module(number: int, sizes: Sizes, comdat: Sizes | None = None) -> ModuleScores:
    code = {name: Code(size, {"f": comdat[name]} if comdat else {}) for name, size in sizes.items()}
    return ModuleScores("", f"{number}.o", "C++", {"start": 1, TUNED: 1}, code=code)


def tuned(modules: Sequence[ModuleScores], held_out: int) -> Tuned:
    """The first modules are held out, and all are linked to one program."""
    keys = tuple(ModuleKey("", each.module) for each in modules)
    return Tuned(modules, "start", frozenset(keys[:held_out]), {"program": keys}, {})


def sizes(llvm: int, start: int, own: int) -> dict[str, int]:
    return {"LLVM": llvm, "start": start, TUNED: own}


@pytest.mark.parametrize(
    ("held_out", "trained_on", "chosen"),
    [
        (sizes(100, 90, 80), sizes(100, 90, 80), TUNED),
        (sizes(100, 90, 95), sizes(100, 90, 10), "start"),  # learned by heart
        (sizes(100, 110, 105), sizes(100, 90, 10), "LLVM"),
        (sizes(100, 101, 105), sizes(100, 90, 10), "start"),  # it was trained on neither
        (sizes(100, 90, 90), sizes(100, 90, 80), "start"),  # no better than where it started
        (sizes(100, 100, 100), sizes(100, 90, 80), "start"),
        (sizes(100, 90, 80), sizes(100, 80, 95), "start"),  # worse in all
        (sizes(100, 110, 90), sizes(100, 80, 115), "start"),
        (sizes(100, 110, 90), sizes(100, 95, 115), "LLVM"),
    ],
)
def test_the_choice(held_out: Sizes, trained_on: Sizes, chosen: str) -> None:
    assert choose(tuned([module(0, held_out), module(1, trained_on)], 1)).name == chosen


def test_what_a_project_file_brings_is_counted() -> None:
    found = tuned([module(0, sizes(90, 80, 70)), module(1, sizes(90, 95, 85))], 1)
    keys = found.targets["program"]
    found = replace(found, plain={keys[0]: Code(100, {}), keys[1]: Code(105, {})})
    found = replace(found, choice=choose(found))
    assert found.target_bytes()["program"] == {
        "plain": 205,
        "LLVM": 180,
        "start": 175,
        TUNED: 155,
        BUILT: 155,
    }


def test_why() -> None:
    found = tuned([module(0, sizes(100, 90, 80)), module(1, sizes(100, 80, 95))], 1)
    assert choose(found).why == (
        "Linked text of the 1 module held out, against LLVM's own: tuned -20.00 %, start -10.00 %. "
        "Of all targets, start makes less than tuned."
    )
    found = tuned([module(0, sizes(100, 101, 102)), module(1, sizes(100, 80, 95))], 1)
    assert choose(found).why == (
        "Linked text of the 1 module held out, against LLVM's own: tuned +2.00 %, start +1.00 %. "
        "Of all targets, start makes less than LLVM."
    )


def test_an_interval_of_enough_modules() -> None:
    many = [module(number, sizes(100, 90, 80 + number)) for number in range(ENOUGH)]
    few = tuned(many[1:], ENOUGH)
    assert against_start(few, few.part(is_held_out=True)) is None
    for found, has_interval in ((few, False), (tuned(many, ENOUGH), True)):
        row = parts_grid(found).rows[0]
        assert [isinstance(each, Cell) and bool(each.note) for each in row[-2:]] == (
            [has_interval] * 2
        )
        held_out = found.to_json()["linked_text"]["held_out"]
        assert (held_out[TUNED]["interval"] is not None) == has_interval
    found = tuned(many, ENOUGH)
    ends = against_start(found, found.part(is_held_out=True))
    assert ends is not None
    assert 80 / 90 < ends[0] < sum(range(80, 88)) / 720 < ends[1] < 87 / 90
    assert "tuned against start: -7.22 % [" in choose(found).why


def test_a_build_keeps_the_smaller_object() -> None:
    modules = [module(0, sizes(100, 90, 80)), module(1, sizes(100, 90, 120))]
    held = tuned(modules, 1)
    for name, expected in ((TUNED, 180), ("start", 180), ("LLVM", 200)):
        found = Tuned(
            held.scores, "start", held.held_out, held.targets, {}, choice=TuneChoice(name, "")
        )
        assert found.target_bytes()["program"][BUILT] == expected
    assert found.target_bytes()["program"] == sizes(200, 180, 200) | {BUILT: 200}


@pytest.mark.parametrize(
    ("name", "keeps_smaller", "size", "said"),
    [
        (TUNED, True, 180, "Built: tuned, the smaller object kept."),
        (TUNED, False, 200, "Built: tuned."),
        ("LLVM", True, 200, "Built: LLVM."),
    ],
)
def test_objects_are_compared_only_where_the_build_does_it(
    name: str, keeps_smaller: bool, size: int, said: str
) -> None:
    modules = [module(0, sizes(100, 90, 80)), module(1, sizes(100, 90, 120))]
    found = replace(tuned(modules, 1), choice=TuneChoice(name, ""), keeps_smaller=keeps_smaller)
    assert found.target_bytes()["program"][BUILT] == size
    assert built(found) == said


def test_targets_have_what_they_share_once() -> None:
    comdats = sizes(40, 30, 20)
    modules = [module(number, sizes(100, 90, 80), comdats) for number in range(2)]
    one, both = ModuleKey("", "0.o"), tuned(modules, 1).targets["program"]
    found = Tuned(modules, "start", frozenset({one}), {"a": both, "b": (one,)}, {})
    assert found.target_bytes() == {
        "a": sizes(160, 150, 140) | {BUILT: 160},
        "b": sizes(100, 90, 80) | {BUILT: 100},
    }


def test_what_fails_is_left_out() -> None:
    failed = ModuleScores("", "2.o", "C++", errors=(Failure(InputError("it crashed")),))
    found = tuned([failed, module(0, sizes(100, 90, 80))], 1)
    assert choose(found) == ("LLVM", "No module that is held out was compiled by all.")
    assert found.target_bytes()["program"]["LLVM"] == 100

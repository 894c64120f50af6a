"""What datasets have in common: to JSON and back, and every field broken once."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import pytest

from mlgo_gym.base._tensor_spec import TensorSpec
from mlgo_gym.datasets._header import DatasetHeader
from mlgo_gym.errors import DatasetError, SpecError
from mlgo_gym.problems._inlining_for_size import InliningForSize
from mlgo_gym.problems._problem import Problem
from mlgo_gym.problems._regalloc_priority import RegallocPriority
from mlgo_gym.problems._registry import problems
from mlgo_gym.stream._training_log import Header

HEADER = DatasetHeader.of(RegallocPriority(), "22.1.0", opt_level="Os", llvmlite_version="0.50.0")


@pytest.mark.parametrize("problem", problems().values())
def test_there_and_back(problem: type[Problem]) -> None:
    for header in (
        DatasetHeader.of(problem(), "22.1.0"),
        DatasetHeader(problem().layout, score=None),
    ):
        assert DatasetHeader.from_json(header.to_json(), "x") == header


def test_the_json() -> None:
    value = json.loads(HEADER.to_json())
    assert value["format"] == 1
    assert value["problem_settings"] == {"problem": "RegallocPriority"}
    assert (value["llvm_version"], value["opt_level"]) == ("22.1.0", "Os")
    assert [each["name"] for each in value["features"]] == ["li_size", "stage", "weight"]
    assert DatasetHeader.from_json(HEADER.to_json(), "x").llvmlite_version == "0.50.0"


def test_what_json_cannot_hold_is_not_written() -> None:
    for value in (math.nan, math.inf):
        with pytest.raises(ValueError, match="Out of range float values are not JSON compliant"):
            replace(HEADER, settings={"limit": value}).to_json()


def test_the_header_of_its_training_log() -> None:
    header = DatasetHeader.of(InliningForSize(), None).log_header()
    assert [spec.name for spec in header.features][-2:] == ["inlining_default", "inlining_decision"]
    assert header.score == TensorSpec("reward", "float", (1,))


SPEC = {"name": "weight", "type": "float", "port": 0, "shape": [1]}
SENT = [json.loads(each.to_json()) for each in RegallocPriority().layout.specs]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"problem": "Chess"}, "header: problem: expected one of InliningForSize, "
         "RegallocEviction, RegallocPriority, found 'Chess'"),
        ({"problem": None}, "header: problem: expected a text, found None"),
        ({"features": []}, "header: expected observations of 1 to 16777216 bytes, found 0 bytes"),
        ({"features": [SPEC | {"name": "age"}]}, "header: feature 'li_size': expected int64_t "
         "(1,), found none; feature 'stage': expected int64_t (1,), found none; feature 'weight': "
         "expected float (1,), found none"),
        ({"features": [*SENT[:2], SPEC | {"type": "double"}]}, "header: feature 'weight': "
         "expected float (1,), found double (1,)"),
        ({"features": [7]}, "header: tensor spec: expected a JSON object, found 7"),
        ({"extras": [SPEC]}, "header: two features are called 'weight'"),
        ({"order": ["stage", "weight", 7]}, "header: order: expected all of ['li_size', 'stage', "
         "'weight'], found ['stage', 'weight', 7]"),
        ({"order": 7}, "header: order: expected a list or null, found 7"),
        ({"advice": None}, "header: advice: expected a JSON object, found None"),
        ({"advice": SPEC}, "header: advice: expected TensorSpec(name='priority', type='float', "
         "shape=(1,), port=0), found TensorSpec(name='weight',"),
        ({"advice": []}, "header: advice: expected a JSON object, found []"),
        ({"problem_settings": []}, "header: problem_settings: expected a JSON object or null, "
         "found []"),
        ({"llvm_version": 22}, "header: llvm_version: expected a text or null, found 22"),
        ({"llvmlite_version": 1}, "header: llvmlite_version: expected a text or null, found 1"),
        ({"opt_level": 2}, "header: opt_level: expected a text or null, found 2"),
        ({"score": SPEC | {"type": "int64_t"}}, "header: score 'weight': expected one float, "
         "found int64_t (1,)"),
        ({"score": SPEC | {"shape": [2]}}, "header: score 'weight': expected one float, "
         "found float (2,)"),
        ({"score": []}, "header: tensor spec: expected a JSON object, found []"),
    ],
)  # fmt: skip
def test_what_is_refused(change: dict[str, Any], message: str) -> None:
    value = json.loads(HEADER.to_json()) | change
    with pytest.raises(DatasetError) as caught:
        DatasetHeader.from_json(json.dumps(value).encode(), "part")
    assert str(caught.value).startswith(f"dataset 'part': {message}")


def test_features_in_another_order() -> None:
    value = json.loads(HEADER.to_json())
    value["features"] = value["features"][::-1]
    found = DatasetHeader.from_json(json.dumps(value).encode(), "part")
    assert [spec.name for spec in found.layout.specs] == ["weight", "stage", "li_size"]
    assert HEADER.differences(found) == ["features: expected the same order, found another"]


def test_what_comes_besides_may_stand_between() -> None:
    new, specs = TensorSpec("new", "float", (2,)), InliningForSize().layout.specs
    sent = Header((*specs[:3], new, *specs[3:]), advice=InliningForSize.advice)
    header = DatasetHeader.of(InliningForSize().as_sent(sent), None)
    found = DatasetHeader.from_json(header.to_json(), "part")
    assert found.layout.specs == sent.features
    assert [each.spec.name for each in found.layout.extras] == ["inlining_default", "new"]
    assert b"order" not in DatasetHeader.of(InliningForSize(), None).to_json()


def test_what_has_more_is_taken() -> None:
    """A header takes what describes all that it needs, and nothing else."""
    specs, advice = RegallocPriority().layout.specs, RegallocPriority.advice
    one, two = TensorSpec("one", "float", (2,)), TensorSpec("two", "float", (1,))
    plain = RegallocPriority().layout
    more = plain.extended(Header((*specs, one), advice=advice))
    most = plain.extended(Header((*specs, one, two), advice=advice))
    other = plain.extended(Header((*specs, two), advice=advice))
    header = DatasetHeader(more)
    assert header.with_layout(most) == DatasetHeader(most)
    for layout in (plain, other, InliningForSize().layout):
        assert header.with_layout(layout) is header


def test_features_that_came_with_another_llvm() -> None:
    new = {"name": "nr_copies", "type": "uint32_t", "port": 0, "shape": [1, 4]}
    value = json.loads(HEADER.to_json()) | {"features": [*SENT, new]}
    found = DatasetHeader.from_json(json.dumps(value).encode(), "part")
    assert found.layout.feature_names[3:] == ("nr_copies",)
    assert DatasetHeader.from_json(found.to_json(), "part").differences(found) == []
    assert HEADER.differences(found) == [
        "features: expected no others, found ['nr_copies uint32_t (1, 4)']"
    ]
    (less,) = found.differences(HEADER)
    assert less == "features: expected ['nr_copies uint32_t (1, 4)'], found none of them"


def test_a_score_that_outcomes_cannot_hold() -> None:
    with pytest.raises(SpecError) as caught:
        DatasetHeader(InliningForSize().layout, score=TensorSpec("delta_size", "int64_t", (1,)))
    assert str(caught.value) == "score 'delta_size': expected one float, found int64_t (1,)"

"""The feature table, against the header that LLVM sends and the values it holds."""

from __future__ import annotations

import math
from collections import defaultdict
from pathlib import Path

import pytest

from mlgo_gym.base._tensor_spec import TensorSpec
from mlgo_gym.corpus._corpus import Corpus, Module
from mlgo_gym.errors import EnvironmentSetupError, OptionsError, UsageError
from mlgo_gym.llvm._compiler import Compiler
from mlgo_gym.llvm.command._options import CompileOptions
from mlgo_gym.problems._inlining_for_size import InliningForSize, default
from mlgo_gym.rollout._replay import record, replay
from mlgo_gym.stream._training_log import Header, Observation


@pytest.mark.e2e
def test_every_value_is_within_its_documented_range(compiler: Compiler, sample: Corpus) -> None:
    """The header is checked at every compilation; here the values are."""
    seen: dict[str, set[int]] = defaultdict(set)

    def watch(observation: Observation) -> int:
        for name, array in observation.arrays().items():
            seen[name].add(int(array[0]))
        return default(observation)

    for name in sample:
        compiler.compile_module(sample[name], problem=InliningForSize(), policy=watch)
    for feature in InliningForSize().layout.features + InliningForSize().layout.extras:
        values = seen[feature.spec.name]
        assert feature.low <= min(values) <= max(values) <= feature.high, feature.spec.name
    # What the table claims about single features.
    assert seen["indirect_call_penalty"] == {0}
    assert all(len(seen[name]) > 3 for name in ("call_penalty", "num_loops"))
    assert all(value % 25 == 0 for value in seen["call_penalty"] | seen["num_loops"])
    assert all(value % 5 == 0 for value in seen["unsimplified_common_instructions"])
    assert max(seen["callsite_cost"]) < 0
    assert seen["last_call_to_static_bonus"] == seen["is_multiple_blocks"] == {0, 1}


def test_every_feature_is_documented() -> None:
    for feature in InliningForSize().layout.features + InliningForSize().layout.extras:
        assert feature.meaning
        assert feature.unit in {"cost", "count", "flag"}


@pytest.mark.parametrize("value", [0, -1, math.nan, "2"])
def test_growth_limits_that_make_no_sense(value: float) -> None:
    with pytest.raises(OptionsError) as caught:
        InliningForSize(size_increase_threshold=value)
    expected = f"size_increase_threshold: expected a number above 0, found {value!r}"
    assert str(caught.value) == expected


def test_the_growth_limit_is_on_record() -> None:
    assert InliningForSize(3).settings()["size_increase_threshold"] == 3.0
    assert InliningForSize(math.inf).settings()["size_increase_threshold"] == "inf"


PROFILED = """
declare i32 @use(i32)
define internal i32 @callee(i32 %x) {
  %y = mul i32 %x, %x
  %z = call i32 @use(i32 %y)
  ret i32 %z
}
define i32 @cold(i32 %x) !prof !1 {
  %a = call i32 @callee(i32 %x)
  %b = call i32 @callee(i32 %a)
  ret i32 %b
}
define i32 @hot(i32 %x) !prof !2 {
  %a = call i32 @callee(i32 %x)
  %b = call i32 @callee(i32 %a)
  %c = call i32 @callee(i32 %b)
  ret i32 %c
}
!1 = !{!"function_entry_count", i64 0}
!2 = !{!"function_entry_count", i64 100000}
!llvm.module.flags = !{!3}
!3 = !{i32 1, !"ProfileSummary", !4}
!4 = !{!5, !6, !7, !8, !9, !10, !11, !12}
!5 = !{!"ProfileFormat", !"InstrProf"}
!6 = !{!"TotalCount", i64 200000}
!7 = !{!"MaxCount", i64 100000}
!8 = !{!"MaxInternalCount", i64 100000}
!9 = !{!"MaxFunctionCount", i64 100000}
!10 = !{!"NumCounts", i64 3}
!11 = !{!"NumFunctions", i64 3}
!12 = !{!"DetailedSummary", !13}
!13 = !{!14, !15}
!14 = !{i32 10000, i64 100000, i32 1}
!15 = !{i32 999999, i64 1000, i32 2}
"""
"""A function that is never entered, and one that is all of the time."""


def test_callers_that_are_not_cold_are_left_to_llvm(compiler: Compiler) -> None:
    module, options = Module.from_ir(PROFILED), CompileOptions("O2")
    for skip_policy, decisions in (("never", 5), ("if-caller-not-cold", 2), ("never", 5)):
        problem = InliningForSize(skip_policy=skip_policy)
        trace = record(compiler, module, problem, lambda _: 0, options, keep_observations=True)
        assert trace.decisions == decisions
        assert trace.settings.get("skip_policy", "never") == skip_policy
        assert replay(compiler, trace, module).object_sha256 == trace.object_sha256


def test_no_such_skip_policy() -> None:
    with pytest.raises(OptionsError) as caught:
        InliningForSize(skip_policy="hot")
    expected = "skip_policy: expected 'never' or 'if-caller-not-cold', found 'hot'"
    assert str(caught.value) == expected


def test_the_growth_limit_is_in_force(compiler: Compiler, sample: Corpus) -> None:
    module = sample["variant_value.cpp"]

    def decisions(limit: float) -> int:
        problem = InliningForSize(size_increase_threshold=limit)
        return compiler.compile_module(module, problem=problem, policy=lambda _: 1).decisions

    assert decisions(1.01) < decisions(2.0) < decisions(math.inf)


@pytest.mark.parametrize("action", [2, -1, 0.5, None])
def test_actions_that_llvm_does_not_take(action: int) -> None:
    observation = Observation(Header(InliningForSize().layout.specs), "", 0, bytes(8 * 39))
    with pytest.raises(UsageError) as caught:
        InliningForSize().encode_advice(action, observation)
    assert str(caught.value) == f"inlining_decision: expected 0 or 1, found {action!r}"


@pytest.mark.parametrize(
    ("header", "message"),
    [
        (
            Header(InliningForSize().layout.specs[1:], advice=InliningForSize.advice),
            "feature 'sroa_savings': expected int64_t (1,), found none",
        ),
        (
            Header(
                (TensorSpec("sroa_savings", "float", (1,)), *InliningForSize().layout.specs[1:]),
                advice=InliningForSize.advice,
            ),
            "feature 'sroa_savings': expected int64_t (1,), found float (1,)",
        ),
        (
            Header(InliningForSize().layout.specs),
            "advice: expected TensorSpec(name='inlining_decision', type='int64_t', shape=(1,), "
            "port=0), found None",
        ),
    ],
)
def test_headers_of_another_llvm(header: Header, message: str) -> None:
    with pytest.raises(EnvironmentSetupError) as caught:
        InliningForSize().layout.check(header)
    prefix = "InliningForSize: this LLVM describes the problem differently: "
    assert str(caught.value) == prefix + message


def test_the_documented_table_is_this_one() -> None:
    page = Path(__file__).parent.parent.parent / "docs" / "environments" / "inlining-for-size.md"
    rows = [line for line in page.read_text().splitlines() if line.startswith("| `")]
    table = [
        f"| `{each.spec.name}` | {each.unit} | {each.meaning} |"
        for each in InliningForSize().layout.features
    ]
    assert rows[-len(table) :] == table

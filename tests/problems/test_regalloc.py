"""The feature tables of register allocation, against what LLVM sends, for two targets."""

from __future__ import annotations

import math
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mlgo_gym.corpus._corpus import Corpus, Module
from mlgo_gym.errors import OptionsError, UsageError
from mlgo_gym.llvm._compiler import Compiler, options_of
from mlgo_gym.problems._policy import Action, Answer
from mlgo_gym.problems._problem import Problem
from mlgo_gym.problems._regalloc_eviction import (
    ASKING_POSITION,
    POSITIONS,
    RegallocEviction,
    first_legal,
    keep,
    legal_positions,
    lowest_density,
)
from mlgo_gym.problems._regalloc_priority import RegallocPriority, by_size
from mlgo_gym.rollout._allocation import Allocator
from mlgo_gym.stream._training_log import Header, Observation

PAGE = Path(__file__).parent.parent.parent / "docs" / "environments" / "regalloc.md"


def pressure(triple: str, count: int) -> Module:
    """A loop with more values alive than there are registers."""
    names = range(count)
    lines = [
        f'target triple = "{triple}"',
        "declare void @use(i64)",
        "define i64 @pressed(ptr %p, i64 %n) {",
        "entry:",
        "  br label %loop",
        "loop:",
        "  %i = phi i64 [ 0, %entry ], [ %next, %loop ]",
    ]
    lines += [f"  %v{each} = phi i64 [ {each}, %entry ], [ %w{each}, %loop ]" for each in names]
    for each in names:
        lines += [
            f"  %a{each} = getelementptr i64, ptr %p, i64 %v{each}",
            f"  %l{each} = load i64, ptr %a{each}",
            f"  %w{each} = add i64 %l{each}, %v{(each + 1) % count}",
        ]
    lines += [
        "  call void @use(i64 %w0)",
        "  %next = add i64 %i, 1",
        "  %more = icmp ult i64 %next, %n",
        "  br i1 %more, label %loop, label %done",
        "done:",
        "  %s0 = add i64 %w0, 0",
    ]
    lines += [f"  %s{each} = xor i64 %s{each - 1}, %w{each}" for each in range(1, count)]
    lines += [f"  ret i64 %s{count - 1}", "}"]
    return Module.from_ir("\n".join(lines), f"pressure-{triple}")


def watch(
    compiler: Compiler, problem: Problem, module: Module, policy: Answer
) -> dict[str, list[np.ndarray[Any, Any]]]:
    """Every value of every feature that LLVM sends for a module."""
    seen: dict[str, list[np.ndarray[Any, Any]]] = defaultdict(list)

    def answer(observation: Observation) -> Action:
        for name, values in observation.items():
            seen[name].append(values)
        return policy(observation)

    allocator = Allocator(compiler, problem)
    _, known = allocator.baseline(allocator.optimize(module, options_of(module)))
    result = allocator.allocate(known, answer)
    assert result.decisions == len(seen["progress" if "progress" in seen else "stage"])
    return seen


def check_ranges(problem: Problem, seen: dict[str, list[np.ndarray[Any, Any]]]) -> None:
    assert list(seen) == list(problem.layout.feature_names)
    for feature in problem.layout.features:
        values = np.concatenate([each.ravel() for each in seen[feature.spec.name]])
        finite = values[np.isfinite(values)]
        assert feature.may_be_infinite or len(finite) == len(values), feature.spec.name
        assert feature.low <= finite.min() <= finite.max() <= feature.high, feature.spec.name


@pytest.mark.parametrize("policy", [first_legal, keep, lowest_density])
def test_every_value_is_within_its_documented_range(
    compiler: Compiler, sample: Corpus, policy: Answer
) -> None:
    for name in ("expr_vm.c", "matrix.cpp", "codec_text.c"):
        seen = watch(compiler, RegallocEviction(), sample[name], policy)
        check_ranges(RegallocEviction(), seen)
        masks = np.concatenate(seen["mask"])
        for feature, values in seen.items():  # nothing is said of what cannot be chosen
            if feature not in {"mask", "progress"}:
                assert not np.concatenate(values)[masks == 0].any(), feature


@pytest.mark.parametrize(
    ("triple", "count"),
    [
        ("x86_64-linux-gnu", 40),
        pytest.param("aarch64-linux-gnu", 70, marks=pytest.mark.e2e),
    ],
)
def test_two_targets_under_pressure(compiler: Compiler, triple: str, count: int) -> None:
    module = pressure(triple, count)
    seen = watch(compiler, RegallocEviction(), module, first_legal)
    check_ranges(RegallocEviction(), seen)
    assert len(seen["mask"]) > 20
    check_ranges(RegallocPriority(), watch(compiler, RegallocPriority(), module, by_size))


def test_every_feature_is_documented() -> None:
    page = PAGE.read_text()
    for feature in RegallocEviction().layout.features + RegallocPriority().layout.features:
        assert f"| `{feature.spec.name}` | {feature.unit} | {feature.meaning} |" in page


def observation(mask: list[int]) -> Observation:
    header = Header(RegallocEviction().layout.specs)
    values = np.zeros(POSITIONS, np.int64)
    values[mask] = 1
    return Observation(header, "f", 0, values.tobytes() + bytes(header.size_bytes - 8 * POSITIONS))


def test_what_falls_back_to_what() -> None:
    problem = RegallocEviction()
    assert problem.fallback_action(observation([2, 5, ASKING_POSITION])) == ASKING_POSITION
    assert problem.fallback_action(observation([2, 5])) == 2
    assert legal_positions(observation([5, 2])) == [2, 5]


@pytest.mark.parametrize("action", [0, 32, -1, 33, 2.5, None, "2"])
def test_positions_that_llvm_does_not_take(action: Any) -> None:
    with pytest.raises(UsageError) as caught:
        RegallocEviction().encode_advice(action, observation([2, 5]))
    assert str(caught.value) == f"index_to_evict: expected one of [2, 5], found {action!r}"


@pytest.mark.parametrize("action", [-1.0, math.nan, math.inf, 2.0**32, 10**400, None, "x"])
def test_priorities_that_llvm_does_not_take(action: Any) -> None:
    with pytest.raises(UsageError) as caught:
        RegallocPriority().encode_advice(action, observation([2]))
    assert str(caught.value) == f"priority: expected 0 to 4294967040, found {action!r}"


@pytest.mark.parametrize("count", [0, -1, 1.5, "3"])
def test_eviction_counts_that_make_no_sense(count: Any) -> None:
    with pytest.raises(OptionsError) as caught:
        RegallocEviction(count)
    assert str(caught.value) == (
        f"max_eviction_count: expected a whole number above 0, found {count!r}"
    )


def test_the_eviction_count_is_in_force(compiler: Compiler) -> None:
    """A policy that evicts whenever it can asks less often where each range may go fewer times."""
    module = pressure("x86_64-linux-gnu", 40)
    decisions = [
        len(watch(compiler, RegallocEviction(count), module, first_legal)["mask"])
        for count in (1, 100)
    ]
    assert decisions[0] < decisions[1]

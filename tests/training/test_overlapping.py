"""Generations that overlap: who is slow holds nobody, and what comes too late is counted."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mlgo_gym.corpus._corpus import Corpus, Module
from mlgo_gym.llvm._compiler import Compiler
from mlgo_gym.llvm._schedule import Jobs
from mlgo_gym.problems._inlining_for_size import InliningForSize
from mlgo_gym.problems._observations import columns, observation_dtype
from mlgo_gym.rollout._rollout import Failure
from mlgo_gym.training._compiled import CompiledNetwork
from mlgo_gym.training._contexts import Sampler, TrainingContext, Workshop
from mlgo_gym.training._group import train
from mlgo_gym.training._networks import InliningNetwork, network_features
from mlgo_gym.training._normalization import Normalization
from mlgo_gym.training._overlapping import AnyTrials, Overlapping
from mlgo_gym.training._run import TrainingRun
from mlgo_gym.training._trials import Trial, TrialSetting
from tests.training.conftest import data_of
from tests.training.test_group import EVICTION, QUICK, trained

pytestmark = pytest.mark.e2e

INLINING = InliningForSize()
SMALL = "define i32 @f(i32 %x) {\n  %y = add i32 %x, 1\n  ret i32 %y\n}\n"
CALLER = """
define internal i32 @callee{0}(i32 %x) {{
  %a = mul i32 %x, %x
  %b = xor i32 %a, {0}
  %c = call i32 @outside(i32 %b)
  %d = call i32 @outside(i32 %c)
  %e = sdiv i32 %d, %a
  ret i32 %e
}}
define i32 @caller{0}(i32 %x) {{
  %a = call i32 @callee{0}(i32 %x)
  %b = call i32 @callee{0}(i32 %a)
  %c = call i32 @callee{0}(i32 %b)
  ret i32 %c
}}
"""


def module(name: str, functions: int) -> Module:
    """One whose time to compile is that of so many functions, each with calls to inline."""
    text = "declare i32 @outside(i32)\n" + SMALL + "".join(map(CALLER.format, range(functions)))
    return Module.from_ir(text, name)


def network() -> CompiledNetwork:
    """One that has learned nothing."""
    rows = np.zeros(2, observation_dtype(INLINING))
    rows["cost_estimate"] = np.arange(2)
    fitted = Normalization.fit(columns(rows, INLINING), network_features(INLINING))
    return CompiledNetwork(InliningNetwork(fitted, (2,), 0), INLINING)


class Course:
    """Generations of given contexts, of two quick ones and a slow one, by two workers."""

    def __init__(self, generations: list[list[int]]) -> None:
        sizes = {"slow": 30, "quick": 2, "also quick": 2}
        contexts = [
            TrainingContext(name, module(name, size), 100.0) for name, size in sizes.items()
        ]
        self.generations = generations
        self.sampler = Sampler(contexts)
        self.warnings: list[Failure] = []

    def found(
        self, staleness: int, jobs: Jobs = 2, made: Callable[[int], None] = lambda _: None
    ) -> list[tuple[list[str], int, int]]:
        """Which contexts each update has learned from, and how many were stale and dropped."""
        with network() as code, Workshop(INLINING, jobs=jobs, timeout_s=60.0) as workshop:
            overlapping = Overlapping(
                workshop=workshop,
                sampler=self.sampler,
                drawn=lambda number: self.generations[number - 1],
                setting=lambda number: TrialSetting(0, number, 2, 4.0, 1.0, 0.05),
                network=code.copy,
                staleness=staleness,
                warn=self.warnings.append,
            )
            found = []
            for one in overlapping.updates(range(1, len(self.generations) + 1)):
                names = [self.sampler.contexts[index].name for index, _ in one.trials]
                found.append((names, one.stale, one.dropped))
                made(len(found))
            return found


SLOW, QUICK_ONE, OTHER = range(3)
COURSE = Course([[SLOW, QUICK_ONE], *[[QUICK_ONE, OTHER]] * 4])


@pytest.fixture
def after_four(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Has the slow context, which workers here try, last until four updates are made."""
    is_over = threading.Event()
    tried = AnyTrials.__call__

    def waiting(self: AnyTrials, compiler: Compiler, given: Any) -> Trial:
        *_, (index, _) = given
        if index == SLOW:
            is_over.wait()
        return tried(self, compiler, given)

    monkeypatch.setattr(AnyTrials, "__call__", waiting)
    return lambda updates: is_over.set() if updates == 4 else None


def test_who_is_slow_holds_nobody(after_four: Callable[[int], None]) -> None:
    """Four updates are made meanwhile; what comes then is of the first weights, and counts."""
    found = COURSE.found(staleness=8, made=after_four)
    assert [len(names) for names, _, _ in found] == [2] * 5
    assert ["slow" in names for names, _, _ in found] == [False] * 4 + [True]
    assert [(stale > 0, dropped) for _, stale, dropped in found][-1] == (True, 0)


def test_what_is_too_old_is_dropped(after_four: Callable[[int], None]) -> None:
    found = COURSE.found(staleness=1, made=after_four)
    assert [len(names) for names, _, _ in found] == [2, 2, 2, 2, 1]
    assert [dropped for _, _, dropped in found] == [0, 0, 0, 0, 1]
    assert not any("slow" in names for names, _, _ in found)


@pytest.mark.parametrize(("staleness", "jobs"), [(0, 2), (1, 1)])
def test_generations_one_after_the_other(staleness: int, jobs: int) -> None:
    """Where nothing may be stale, and where one worker does all."""
    found = COURSE.found(staleness, jobs)
    assert [names for names, _, _ in found] == [
        ["slow", "quick"],
        *[["quick", "also quick"]] * 4,
    ]
    assert [counts for _, *counts in found] == [[0, 0]] * 5


def test_a_context_that_fails_counts_as_come(monkeypatch: pytest.MonkeyPatch) -> None:
    course = Course([[QUICK_ONE, OTHER]] * 2)
    broken = replace(course.sampler.contexts[OTHER], code=Module.from_ir("define", "broken"))
    monkeypatch.setattr(course.sampler, "contexts", (*course.sampler.contexts[:OTHER], broken))
    found = course.found(staleness=1)
    assert [name for names, _, _ in found for name in names] == ["quick"] * 2
    assert len(course.warnings) == 2
    assert all("broken" in str(one) for one in course.warnings)


def test_without_stragglers_it_is_what_it_was(sample: Corpus, tmp_path: Path) -> None:
    """One worker has none: every number and weight is that of generations that do not overlap.

    So they are with two where a run was cut off, but for what was under way: the run goes on.
    """
    data = data_of(sample, "expr_vm.c", "codec_text.c")
    arrays, curves = [], []
    for staleness in (0, 2):
        folder = tmp_path / str(staleness)
        _, scalars = trained(folder, replace(QUICK, staleness=staleness), data)
        arrays.append(dict(np.load(folder / "checkpoint.npz")))
        curves.append([{**one, "collect/seconds": 0.0} for one in scalars])
    for name in arrays[0].keys() - {"state"}:
        np.testing.assert_array_equal(arrays[0][name], arrays[1][name])
    counted = [{**one, "collect/stale": 0.0, "collect/dropped": 0.0} for one in curves[0]]
    assert [dict(one) for one in curves[1]] == [
        new if "collect/decisions" in new else old
        for old, new in zip(curves[0], counted, strict=True)
    ]


def test_a_run_that_was_cut_off_goes_on(sample: Corpus, tmp_path: Path) -> None:
    """What was under way is given up, and no process is left of it."""
    config = replace(QUICK, staleness=1, generations=4, validate_every=4)
    data = data_of(sample, "expr_vm.c", "codec_text.c", jobs=2)

    class CutError(Exception):
        pass

    def cut(step: int, values: Mapping[str, float]) -> None:
        if step == 2 and "collect/decisions" in values:
            raise CutError

    with (
        pytest.raises(CutError),
        TrainingRun(tmp_path, "group", EVICTION, config, report=cut) as run,
    ):
        train(run, config, data)
    _, scalars = trained(tmp_path, config, data)
    assert ["collect/stale" in one for one in scalars] == [True, True, True, False]

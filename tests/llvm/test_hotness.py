"""How hot a call is, by the counts in its module: LLVM's numbers, which no factor changes."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import gymnasium
import pytest
from gymnasium.utils.env_checker import check_env

from corpus_tools.profdata import ProfileTools
from mlgo_gym.corpus._corpus import Corpus, Module
from mlgo_gym.datasets._dataset import Dataset
from mlgo_gym.datasets._record import header_of
from mlgo_gym.datasets._record import record as record_dataset
from mlgo_gym.datasets._writer import DatasetWriter
from mlgo_gym.errors import OptionsError
from mlgo_gym.lab.programs import ProfileFile, attach_profile, collect_profile
from mlgo_gym.llvm._compiler import Compiler
from mlgo_gym.llvm.inside._hotness import HOTNESS_FEATURES
from mlgo_gym.problems._inlining_for_size import InliningForSize, default
from mlgo_gym.problems._policy import Policy
from mlgo_gym.rollout._replay import record, replay
from mlgo_gym.rollout._trace import Trace
from mlgo_gym.runners._policy import WorkerPolicy
from mlgo_gym.stream._training_log import Observation
from tests.conftest import require

HOTNESS = InliningForSize(hotness=True, size_increase_threshold=math.inf)
NEEDED = (("clang-22", "clang-22"), ("llvm-profdata-22", "llvm-22"), ("opt-22", "llvm-22"))
COUNTED = """
declare void @outside(i32)

define internal void @often(i32 %x) noinline !prof !23 {{
  call void @outside(i32 %x)
  ret void
}}
define internal void @work(i32 %x) !prof !23 {{
  call void @often(i32 %x)
  call void @outside(i32 %x)
  ret void
}}
define internal void @rarely(i32 %x) {{
  call void @outside(i32 %x)
  call void @outside(i32 %x)
  ret void
}}
define void @start(i32 %n) minsize optsize !prof !20 {{
entry:
  br label %loop
loop:
  %i = phi i32 [ 0, %entry ], [ %next, %done ]
  call void @work(i32 %i)
  %is_odd = icmp slt i32 %i, 7
  br i1 %is_odd, label %odd, label %done, !prof !22
odd:
  call void @rarely(i32 %i)
  br label %done
done:
  %next = add i32 %i, 1
  %more = icmp ult i32 %next, %n
  br i1 %more, label %loop, label %end, !prof !21
end:
  ret void
}}
!llvm.module.flags = !{{!0}}
!0 = !{{i32 1, !"ProfileSummary", !1}}
!1 = !{{!2, !3, !4, !5, !6, !7, !8, !9}}
!2 = !{{!"ProfileFormat", !"InstrProf"}}
!3 = !{{!"TotalCount", i64 {total}}}
!4 = !{{!"MaxCount", i64 {often}}}
!5 = !{{!"MaxInternalCount", i64 {often}}}
!6 = !{{!"MaxFunctionCount", i64 {often}}}
!7 = !{{!"NumCounts", i64 4}}
!8 = !{{!"NumFunctions", i64 3}}
!9 = !{{!"DetailedSummary", !10}}
!10 = !{{!11, !12, !13}}
!11 = !{{i32 500000, i64 {often}, i32 2}}
!12 = !{{i32 990000, i64 {often}, i32 2}}
!13 = !{{i32 999999, i64 {once}, i32 4}}
!20 = !{{!"function_entry_count", i64 {once}}}
!21 = !{{!"branch_weights", i32 {again}, i32 {once}}}
!22 = !{{!"branch_weights", i32 {once}, i32 {again}}}
!23 = !{{!"function_entry_count", i64 {often}}}
"""


def counted(factor: int = 1) -> Module:
    numbers = {"once": 1, "again": 1023, "often": 1024, "total": 4096}
    text = COUNTED.format_map({name: factor * number for name, number in numbers.items()})
    return Module.from_ir(text, "counted")


def asked(compiler: Compiler, module: Module, answer: Any = default) -> list[tuple[int, ...]]:
    seen: list[tuple[int, ...]] = []

    def look(observation: Observation) -> int:
        seen.append(tuple(int(observation[name][0]) for name in HOTNESS_FEATURES))
        return int(answer(observation))

    compiler.compile_module(module, problem=HOTNESS, policy=look)
    return seen


@pytest.mark.parametrize("factor", [1, 10, 1000, 1_000_000])
def test_they_are_llvms(factor: int, compiler: Compiler) -> None:
    """A quarter of all counts is 320 - 2 * 8, and a 4096th 320 - 12 * 8."""
    seen = asked(compiler, counted(factor), lambda _: 0)
    of_work = (1, 1, 224, 304, 304, 500_000, 1, 0)
    of_rarely = (1, 0, 224, 0, 224, 999_999, 0, 1)
    assert [each for each in seen if each[1]] == [of_work]
    assert [each for each in seen if not each[1]] == [of_rarely]


def test_without_a_profile_nothing_is_known(sample: Corpus, compiler: Compiler) -> None:
    seen = asked(compiler, sample["digest.c"])
    assert {*seen} == {(0, 0, 0, 0, 0, 1_000_000, 0, 0)}


def test_the_names_are_the_problems() -> None:
    assert HOTNESS.layout.derived == HOTNESS_FEATURES
    both = InliningForSize(hotness=True, derived=True)
    assert both.layout.derived == (*InliningForSize.optional["derived"], *HOTNESS_FEATURES)


@pytest.mark.parametrize("derived", [False, True])
@pytest.mark.parametrize("policy", [default, WorkerPolicy(default)])
def test_nothing_changes(derived: bool, policy: Policy, sample: Corpus, compiler: Compiler) -> None:
    problem = InliningForSize(hotness=True, derived=derived, size_increase_threshold=math.inf)
    for module in (sample["scene.cpp"], counted()):
        plain = compiler.compile_module(module)
        done = compiler.compile_module(module, problem=problem, policy=policy)
        assert done.object_sha256 == plain.object_sha256
        assert done.decisions > 0


def test_traces_and_datasets_have_them(sample: Corpus, compiler: Compiler, tmp_path: Path) -> None:
    module = counted()
    record(compiler, module, HOTNESS, default, keep_observations=True).save(tmp_path / "trace")
    trace = Trace.load(tmp_path / "trace")
    assert trace.settings["hotness"] is True
    assert {spec.name for spec in trace.features} >= {*HOTNESS_FEATURES}
    assert replay(compiler, trace, module).object_sha256 == trace.object_sha256
    with DatasetWriter(tmp_path / "dataset", header_of(HOTNESS)) as writer:
        corpora = {"sample": sample.only(["digest.c"])}
        list(record_dataset(writer, corpora, HOTNESS, "default", default))
    assert {*Dataset.open(tmp_path / "dataset").layout.feature_names} >= {*HOTNESS_FEATURES}


def test_an_environment_forks(sample: Corpus) -> None:
    env: Any = gymnasium.make(
        "mlgo_gym/InliningForSize-v0", corpus=sample, hotness=True, size_increase_threshold=math.inf
    )
    with env:
        check_env(env.unwrapped, skip_render_check=True)
        observation, _ = env.reset(options={"module": counted()})
        first = _hotness_of(observation)
        with env.unwrapped.fork() as branch:
            ends = []
            for each in (env.unwrapped, branch):
                is_over, found = False, []
                while not is_over:
                    observation, reward, is_over, _, _ = each.step(1)
                    found.append(_hotness_of(observation))
                ends.append((reward, found))
    assert ends[0] == ends[1]
    assert first["call_is_counted"] == 1


def _hotness_of(observation: Any) -> dict[str, int]:
    return {name: int(observation[name][0]) for name in HOTNESS_FEATURES}


def test_what_the_setting_cannot_be() -> None:
    with pytest.raises(OptionsError) as caught:
        InliningForSize(hotness=1)  # type: ignore[arg-type]
    assert str(caught.value) == "hotness: expected True or False, found 1"


@pytest.mark.e2e
def test_no_factor_changes_them(sample: Corpus, compiler: Compiler, tmp_path: Path) -> None:
    """The sample with its program's counts, and with ten times as many: the same questions."""
    for program, package in NEEDED:
        require(program, package)
    profile = collect_profile(sample).profile
    with profile.at_hand() as once:
        ten = ProfileFile("ten", ProfileTools.find().merge([once] * 10))
    corpora = []
    for folder, each in ((tmp_path / "one", profile), (tmp_path / "ten", ten)):
        attach_profile(sample, each, folder)
        corpora.append(Corpus.load(folder))
    seen: set[tuple[int, ...]] = set()
    for name in ("json_read.c", "expr_vm.c", "scene.cpp", "graph.cpp"):
        asked_of = [asked(compiler, corpus[name]) for corpus in corpora]
        assert asked_of[0] == asked_of[1]
        seen |= {*asked_of[0]}
    assert len({each[HOTNESS_FEATURES.index("call_share")] for each in seen}) > 5
    assert {each[HOTNESS_FEATURES.index("call_is_hot")] for each in seen} == {0, 1}

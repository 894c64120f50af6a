"""Counts are those of the programs: known loops, inlining, threads; LLVM's own tools agree."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from mlgo_gym import Compiler, Module
from mlgo_gym.corpus import Corpus
from mlgo_gym.lab.programs import (
    Collected,
    ProfileFile,
    attach_profile,
    collect_profile,
    counters_of,
    counts_of_corpus,
    summary_of_profile,
)
from mlgo_gym.lab.programs._collect import _differing
from mlgo_gym.llvm import CompileOptions
from mlgo_gym.llvm._task import ALLOCATE_WITH_FREQUENCIES, OPTIMIZE
from mlgo_gym.llvm.text._machine_code import block_counts
from tests.lab.programs.profiles.conftest import counted

pytestmark = pytest.mark.e2e

MILLION = 1_000_000
INLINED = """
target triple = "x86_64-unknown-linux-gnu"
declare void @a()
declare void @b()
define void @bar(i32 %n) #0 !prof !2 {
  br label %head
head:
  %i = phi i32 [ 0, %0 ], [ %next, %latch ]
  %odd = and i32 %i, 3
  %is = icmp eq i32 %odd, 0
  br i1 %is, label %one, label %other, !prof !3
one:
  call void @a()
  br label %latch
other:
  call void @b()
  br label %latch
latch:
  %next = add i32 %i, 1
  %more = icmp ult i32 %next, %n
  br i1 %more, label %head, label %out, !prof !4
out:
  ret void
}
define void @foo(i32 %n) #0 !prof !5 {
  call void @bar(i32 %n)
  ret void
}
attributes #0 = { uwtable }
!llvm.module.flags = !{!0}
!0 = !{i32 1, !"ProfileSummary", !1}
!1 = !{!10, !11, !12, !13, !14, !15, !16, !17}
!2 = !{!"function_entry_count", i64 2}
!3 = !{!"branch_weights", i32 100, i32 300}
!4 = !{!"branch_weights", i32 398, i32 2}
!5 = !{!"function_entry_count", i64 1}
!10 = !{!"ProfileFormat", !"InstrProf"}
!11 = !{!"TotalCount", i64 800}
!12 = !{!"MaxCount", i64 400}
!13 = !{!"MaxInternalCount", i64 400}
!14 = !{!"MaxFunctionCount", i64 2}
!15 = !{!"NumCounts", i64 6}
!16 = !{!"NumFunctions", i64 2}
!17 = !{!"DetailedSummary", !18}
!18 = !{!19, !20}
!19 = !{i32 990000, i64 1, i32 6}
!20 = !{i32 999999, i64 0, i32 6}
"""


def blocks_that_call(name: str, module: Module, *, optimize: bool) -> dict[str, float]:
    """How often the blocks run that call a function, of each function, by LLVM's frequencies."""
    options = CompileOptions("O2")
    with Compiler() as compiler:
        if optimize:
            product = compiler.produce(module, options, OPTIMIZE)
            module = Module(module.name, product.data)
        product = compiler.produce(module, options, ALLOCATE_WITH_FREQUENCIES)
    counts = block_counts(product.stderr)
    found: dict[str, float] = {}
    for document in product.data.decode().split("\n---\n"):
        function = re.search(r"^name: +(\S+)$", document, re.MULTILINE)
        parts = re.split(r"^  bb\.(\d+)", document, flags=re.MULTILINE)
        for block, text in zip(parts[1::2], parts[2::2], strict=True):
            if function and re.search(rf"CALL64\w+ .*@{name}\b", text):
                found[function[1]] = counts[function[1]][int(block)]
    return found


def test_three_loops(loops: Corpus, tmp_path: Path) -> None:
    corpus = counted(loops, tmp_path / "counted")
    counts = counts_of_corpus(corpus)
    functions = counts.modules["loops.c"].functions
    assert functions["bar"].entry == 3 * MILLION
    assert counts.modules["loops.c"].calls["bar"] == 3 * MILLION
    assert functions["three"].weights == ((100, 1), (10_000, 100), (MILLION, 10_000))
    assert counts.inconsistencies() == []
    found = blocks_that_call("bar", corpus["loops.c"], optimize=False)
    assert found == {name: pytest.approx(MILLION, rel=0.0003) for name in ("one", "two", "three")}


def test_front_ends_weights(tmp_path: Path, clang22: str) -> None:
    """Laplace's rule, as clang's front end has it: one more for each way."""
    (tmp_path / "a.c").write_text(
        'void bar(int i) { __asm__ volatile("" : : "r"(i)); }\n'
        "int main(void) { for (int i = 0; i < 100; i++) for (int j = 0; j < 100; j++)"
        " for (int k = 0; k < 100; k++) bar(k); }"
    )
    for arguments in (
        [clang22, "-w", "-fprofile-instr-generate", "a.c", "-o", "a"],
        ["env", "LLVM_PROFILE_FILE=a.profraw", "./a"],
        ["llvm-profdata-22", "merge", "a.profraw", "-o", "a.profdata"],
        [clang22, "-w", "-O2", "-fprofile-instr-use=a.profdata", "-Xclang",
         "-disable-llvm-optzns", "-emit-llvm", "-c", "a.c", "-o", "a.c.bc"],
    ):  # fmt: skip
        subprocess.run(arguments, check=True, cwd=tmp_path)
    (tmp_path / "corpus_description.json").write_text('{"has_thinlto": false, "modules": ["a.c"]}')
    counts = counts_of_corpus(Corpus.load(tmp_path)).modules["a.c"].functions
    assert counts["main"].weights == ((101, 2), (10_001, 101), (MILLION + 1, 10_001))
    assert counts["bar"].entry == MILLION


def test_inlining_takes_counts_along() -> None:
    module = Module.from_ir(INLINED)
    before = {each: blocks_that_call(each, module, optimize=False)["bar"] for each in "ab"}
    assert before == {"a": pytest.approx(100, rel=0.001), "b": pytest.approx(300, rel=0.001)}
    after = {each: blocks_that_call(each, module, optimize=True) for each in "ab"}
    assert after["a"] == {name: pytest.approx(50, rel=0.001) for name in ("bar", "foo")}
    assert after["b"] == {name: pytest.approx(150, rel=0.001) for name in ("bar", "foo")}
    with Compiler() as compiler:
        product = compiler.produce(module, CompileOptions("O2"), OPTIMIZE)
        counts = compiler.produce(
            Module("m", product.data), CompileOptions("O2"), ALLOCATE_WITH_FREQUENCIES
        )
    assert block_counts(counts.stderr)["bar"][0] == 1


def test_threads_lose_counts(racy: Corpus, tmp_path: Path) -> None:
    found = next(each for each in _collected(racy) if each.warnings)
    (warning,) = found.warnings
    assert re.fullmatch(
        r"workload 'w': expected the same counts of two runs, found others in \d+ functions; "
        r"threads that share counters lose counts, unless they are atomic",
        warning,
    )
    lossy = next(each.profile for each in _collected(racy) if _calls_and_entries(each)[0] != 0)
    attach_profile(racy, lossy, tmp_path / "lossy")
    (wrong, *_) = counts_of_corpus(Corpus.load(tmp_path / "lossy")).inconsistencies()
    assert (wrong.module, wrong.function, wrong.what) == ("racy.c", "bar", "calls")


def test_atomic_counts_are_exact(racy: Corpus, tmp_path: Path) -> None:
    exact = collect_profile(racy, atomic=True)
    assert exact.warnings == []
    assert _calls_and_entries(exact) == (0, 20_000_000)
    counts = counts_of_corpus(counted(racy, tmp_path / "exact", atomic=True))
    assert counts.inconsistencies() == []


def _collected(corpus: Corpus) -> Iterator[Collected]:
    """As often as it takes: where there is one processor for all threads, a run may lose none."""
    return (collect_profile(corpus) for _ in range(20))


def _calls_and_entries(found: Collected) -> tuple[int, int]:
    """How many more calls than entries there are of what threads call, and the entries."""
    counters = {name: each for (name, _), each in counters_of(found.profile).items()}
    (entries,) = counters["racy.c;bar"]
    return counters["racy.c;work"][0] - entries, entries


def test_summary_is_llvms(loops: Corpus, tmp_path: Path, opt22: str) -> None:
    """Its numbers are the profile's, and functions are hot and cold by its thresholds."""
    profile = collect_profile(loops).profile
    corpus = counted(loops, tmp_path / "counted")
    counts = counts_of_corpus(corpus)
    summary = counts.summary
    assert summary == summary_of_profile(profile)
    command = [opt22, "-passes=print-profile-summary", "-disable-output", "loops.c.bc"]
    printed = subprocess.run(
        command, cwd=corpus.folder, check=True, capture_output=True, text=True
    ).stderr
    of_llvm = dict(re.findall(r"^(\w+) :(hot|cold) entry", printed, re.MULTILINE))
    assert summary.hot_threshold is not None
    assert summary.cold_threshold is not None
    ours = {
        name: "hot" if each.entry >= summary.hot_threshold else "cold"
        for name, each in counts.modules["loops.c"].functions.items()
        if each.entry >= summary.hot_threshold or each.entry <= summary.cold_threshold
    }
    assert ours == of_llvm == {"bar": "hot", "one": "cold", "two": "cold", "three": "cold"}


def test_functions_whose_counts_differ(loops: Corpus) -> None:
    """Without a call of ``three`` its counts and those of ``bar`` are others."""
    one = collect_profile(loops).profile
    assert _differing(one, collect_profile(loops).profile) == 0
    assert _differing(one, _without_a_loop(loops)) == 2


def _without_a_loop(corpus: Corpus) -> ProfileFile:
    main = "void one(void), two(void); int main(void) { one(); two(); }"
    (corpus.folder / "workloads" / "main.c").write_text(main)
    return collect_profile(corpus).profile

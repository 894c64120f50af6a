"""Decisions with their places and code, and what two policies do differently."""

from __future__ import annotations

import re
import subprocess
from collections import Counter
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from time import monotonic

import pytest

from mlgo_gym.corpus._corpus import Corpus, Module
from mlgo_gym.corpus._functions import function_sizes
from mlgo_gym.corpus._packages import ModuleKey
from mlgo_gym.errors import EnvironmentSetupError, InternalError, ModuleError
from mlgo_gym.evaluation._evaluate import Setting
from mlgo_gym.lab.insight._decision_changes import OtherDecision, compare_decisions
from mlgo_gym.lab.insight._decision_table import write_decisions
from mlgo_gym.lab.insight._placed_decisions import (
    PlacedDecision,
    PlacedDecisions,
    executed_programs,
    place_decisions,
    placed_decisions,
    with_executed,
)
from mlgo_gym.llvm._compiler import Compiler
from mlgo_gym.llvm._site import Site
from mlgo_gym.llvm._task import COMPILE
from mlgo_gym.llvm.command._options import CompileOptions
from mlgo_gym.problems._inlining_for_size import InliningForSize, always, default
from mlgo_gym.runners._policy import WorkerPolicy
from mlgo_gym.stream._training_log import Observation
from tests.conftest import require
from tests.llvm.test_sites import IN_SOURCE, LEVELS, MERGED

pq = pytest.importorskip("pyarrow.parquet")

PROBLEM = InliningForSize()


def placed(compiler: Compiler, module: Module, policy: object = default) -> PlacedDecisions:
    return place_decisions(compiler, module, PROBLEM, policy)  # type: ignore[arg-type]


@pytest.mark.e2e
@pytest.mark.parametrize("module", ["graph.cpp", "regex_parse.c"])
def test_every_byte_is_of_one_decision_or_of_none(
    compiler: Compiler, sample: Corpus, module: str
) -> None:
    found = placed(compiler, sample[module])
    inlined = [each for function in found.functions.values() for each in function.inlined]
    given = [code for each in found.decisions for code in each.code]
    assert len({(each.function, each.ids) for each in given}) == len(given) <= len(inlined)
    assert sum(each.own_bytes for each in given) == sum(each.own_bytes for each in found.decisions)
    assert 0 < sum(each.own_bytes for each in given) <= sum(each.own_bytes for each in inlined)
    assert all(each.answer for each in found.decisions if each.code)
    assert [each.index for each in found.decisions] == list(range(len(found.decisions)))
    assert len({each.asked for each in found.decisions}) == len(found.decisions)


def test_code_is_of_the_decision_that_names_most_calls(compiler: Compiler) -> None:
    found = placed(compiler, Module.from_ir(LEVELS), always)
    assert [(str(each.site), len(each.code)) for each in found.decisions] == [
        ("second#0", 2), ("first#1", 2), ("top#0", 1), ("top#1", 1),
    ]  # fmt: skip
    third, second, *firsts = found.decisions
    assert third.own_bytes == third.size_bytes == second.size_bytes
    assert second.own_bytes == 0
    assert sum(each.size_bytes for each in firsts) > second.size_bytes


def test_where_ways_part(compiler: Compiler, sample: Corpus) -> None:
    """Up to there both were asked the same."""
    module = sample["json_read.c"]
    before, after = placed(compiler, module), placed(compiler, module, lambda _: 0)
    change = compare_decisions(before, after)
    assert change.first is not None
    index = change.first.shown.index
    assert [each.asked for each in before.decisions[: index + 1]] == [
        each.asked for each in after.decisions[: index + 1]
    ]
    assert [each.answer for each in before.decisions[:index]] == [0] * index
    assert change.first.answers == (1, 0)
    assert change.text_bytes == (before.text_size_bytes, after.text_size_bytes)


def test_functions_that_changed(compiler: Compiler, sample: Corpus) -> None:
    module = sample["json_read.c"]
    before, after = placed(compiler, module), placed(compiler, module, lambda _: 0)
    functions = compare_decisions(before, after).functions
    differences = [abs(each.difference_bytes) for each in functions]
    assert all(one >= other for one, other in pairwise(differences))
    sizes = [sum(code.size_bytes for code in each.functions.values()) for each in (before, after)]
    assert sum(each.difference_bytes for each in functions) == sizes[1] - sizes[0]
    assert all(
        one is None or other is None or one != other
        for each in functions
        for one, other in [decision.answers for decision in each.decisions]
    )


def test_one_decision_alone(compiler: Compiler, sample: Corpus) -> None:
    """Named first, in the function that it is in."""
    module = sample["json_write.c"]
    before = placed(compiler, module)
    chosen = max(before.decisions, key=lambda each: each.own_bytes)
    count = iter(range(len(before.decisions)))

    def other(observation: Observation) -> int:
        return default(observation) ^ (next(count, -1) == chosen.index)

    change = compare_decisions(before, placed(compiler, module, other))
    assert change.first is not None
    assert change.first.shown.asked == chosen.asked
    assert change.first.answers == (1, 0)
    assert change.first.difference_bytes == -chosen.size_bytes


def test_what_decisions_cost(compiler: Compiler) -> None:
    """The callee by itself is parted among the decisions about it, and no byte is counted twice."""
    module = Module.from_ir(LEVELS)
    before, after = placed(compiler, module, always), placed(compiler, module, lambda _: 0)
    change = compare_decisions(before, after)
    own = {each.asked: each.own_bytes for each in before.decisions}
    found = [each for function in change.functions for each in function.decisions]
    assert {each.answers for each in found} == {(1, 0)}
    callees = Counter(each.shown.site.callee for each in found)
    assert callees == {"third": 1, "second": 1, "first": 2}
    for each in found:
        callee = each.shown.site.callee
        assert each.callee_bytes == after.functions[callee].rest_bytes / callees[callee] > 0
        assert each.cost_bytes == each.callee_bytes - own[each.shown.asked]
    rest = after.functions["top"].rest_bytes - before.functions["top"].rest_bytes
    sizes = [sum(code.size_bytes for code in each.functions.values()) for each in (before, after)]
    assert sum(each.cost_bytes for each in found) == sizes[1] - sizes[0] - rest


def test_equal_policies_differ_in_nothing(compiler: Compiler, sample: Corpus) -> None:
    found = placed(compiler, sample["digest.c"])
    change = compare_decisions(found, placed(compiler, sample["digest.c"]))
    assert (change.first, change.functions) == (None, ())


@pytest.mark.e2e
def test_modules_in_their_order(sample: Corpus) -> None:
    names = ["digest.c", "lz_pack.c", "bignum.c"]
    setting = Setting(PROBLEM, jobs=2)
    corpus = sample.only(names)
    found = list(placed_decisions(corpus, {"LLVM": default, "always": always}, setting))
    assert [done.item for done in found] == [ModuleKey("", name) for name in corpus.names]
    assert all(list(done.value) == ["LLVM", "always"] for done in found)


def test_the_table(compiler: Compiler, sample: Corpus, tmp_path: Path) -> None:
    found = placed(compiler, sample["digest.c"], always)
    with (tmp_path / "decisions.parquet").open("wb") as file:
        write_decisions(file, {"always": [found]}, PROBLEM)
    rows = pq.read_table(tmp_path / "decisions.parquet").to_pylist()
    assert len(rows) == len(found.decisions)
    for row, decision in zip(rows, found.decisions, strict=True):
        assert (row["policy"], row["module"], row["answer"]) == ("always", "digest.c", 1)
        assert row["site"] == str(decision.site)
        assert [each["id"] for each in row["calls"]] == list(decision.site.ids)
        assert row["bytes"] == sum(each["end"] - each["start"] for each in row["ranges"])
        assert row["default"] == default_of(decision)
        assert row["compiler_s"] == decision.compiler_s
        for name in PROBLEM.layout.dtype.names or ():
            assert row[name] == decision.observation[name].item()


def default_of(decision: PlacedDecision) -> int:
    """What LLVM's own heuristic sends along as its answer."""
    return int(decision.observation["inlining_default"].item())


def test_the_time_that_decisions_take(compiler: Compiler, sample: Corpus) -> None:
    """Wherever they are answered; behind the last one is code generation, which is nobody's."""
    start = monotonic()
    for policy in (always, WorkerPolicy(always)):
        *times, last = (
            each.compiler_s for each in placed(compiler, sample["digest.c"], policy).decisions
        )
        assert last is None
        assert len(times) > 20
        assert all(each is not None and each > 0 for each in times)
        assert sum(each or 0 for each in times) < monotonic() - start


def test_workers_that_tell_no_sites(
    compiler: Compiler, sample: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mlgo_gym.lab.insight._placed_decisions.COMPILE_WITH_DEBUG_INFO", COMPILE)
    with pytest.raises(EnvironmentSetupError) as error:
        placed(compiler, sample["digest.c"])
    assert str(error.value) == "sites: expected workers that tell them, as on Linux, found ''"


@pytest.mark.e2e
def test_how_often_the_code_of_decisions_is_executed(compiler: Compiler, sample: Corpus) -> None:
    """What is executed in functions is what valgrind counts in all, but for the rest's."""
    require("clang-22", "clang-22")
    require("valgrind", "valgrind")
    setting = Setting(PROBLEM)
    ((names, executed),) = executed_programs({"": sample}, {"LLVM": default}, setting)
    assert names == ("", "LLVM")
    found = with_executed(placed(compiler, sample["json_read.c"]), executed)
    both = {"put_char", "put_span"}  # json_write.c has static functions of these names, too
    assert found.executed.keys() == found.functions.keys() - both
    ((modules, functions),) = executed
    assert modules == {"json_read.c", "json_write.c"}
    for name in found.executed:
        function = found.functions[name]
        inside = functions[name].within(0, function.size_bytes)
        assert found.executed[name] == inside
        outer = [each for each in function.inlined if len(each.ids) == 1]
        parts = [functions[name].within(*each) for code in outer for each in code.ranges]
        assert 0 <= sum(parts) <= inside
    assert found.executed["parse_text"] > 1_000_000
    for each in found.decisions:
        assert (each.executed is None) == any(code.function in both for code in each.code)
    assert max(each.executed or 0 for each in found.decisions) > 100_000
    other = with_executed(placed(compiler, sample["bignum.c"]), executed)
    assert other.executed == {}
    assert {each.executed for each in other.decisions if each.code} == {None}


CALLS = "".join(
    f"%v{n} = call i32 @other(i32 {n})\n%w{n} = call i32 %f(i32 %v{n})\ncall void @out(i32 %w{n})\n"
    for n in range(220)
)
CLONED = f"""
declare i32 @other(i32)
declare void @out(i32)
define internal i32 @leaf(i32 %x) {{
  %r = call i32 @other(i32 %x)
  %s = call i32 @other(i32 %r)
  ret i32 %s
}}
define internal i32 @apply(i32 %x, ptr %f) noinline {{
  {CALLS}
  %q = call i32 @leaf(i32 %x)
  ret i32 %q
}}
define internal i32 @add(i32 %x) {{
  %y = add i32 %x, 1
  ret i32 %y
}}
define internal i32 @triple(i32 %x) {{
  %y = mul i32 %x, 3
  ret i32 %y
}}
define i32 @one(i32 %x) {{
  %r = call i32 @apply(i32 %x, ptr @add)
  ret i32 %r
}}
define i32 @two(i32 %x) {{
  %r = call i32 @apply(i32 %x, ptr @triple)
  ret i32 %r
}}
define i32 @three(i32 %x, ptr %f) {{
  %r = call i32 @apply(i32 %x, ptr %f)
  ret i32 %r
}}
"""
UNNAMED = """
declare void @out(i32)
define internal i32 @0(i32 %x) noinline {
  call void @out(i32 %x)
  ret i32 %x
}
define internal i32 @1(i32 %x) noinline {
  call void @out(i32 %x)
  call void @out(i32 5)
  ret i32 %x
}
define i32 @top(i32 %x) {
  %y = call i32 @0(i32 4)
  call void @out(i32 3)
  %z = call i32 @1(i32 %y)
  ret i32 %z
}
"""


@pytest.mark.e2e
@pytest.mark.parametrize(("text", "opt_level"), [(CLONED, "O3"), (UNNAMED, "O2")])
def test_functions_of_one_name_in_the_source(compiler: Compiler, text: str, opt_level: str) -> None:
    """Clones have that of what they were cloned from, and some functions have none."""
    module, options = Module.from_ir(text), CompileOptions(opt_level)
    found = place_decisions(compiler, module, PROBLEM, always, opt_level=opt_level)
    made = compiler.compile_module(
        module, options, problem=PROBLEM, policy=always, keep_object=True
    )
    sizes = function_sizes(made.object_bytes or b"")
    assert {name: each.size_bytes for name, each in found.functions.items()} == {
        name: each.size_bytes for name, each in sizes.items()
    }
    for decision in found.decisions:
        if decision.site.caller in found.functions and decision.answer:
            functions = {code.function for code in decision.code}
            assert functions <= {decision.site.caller} or len(functions) > 1


@pytest.mark.e2e
def test_too_many_levels(compiler: Compiler) -> None:
    """An error of the module, where Python's stack ends."""
    levels = 1100
    calls = "".join(
        f"define internal i32 @f{n}(i32 %x) {{ %y = call i32 @f{n + 1}(i32 %x) ret i32 %y }}\n"
        for n in range(levels)
    )
    last = f"define internal i32 @f{levels}(i32 %x) {{ %y = mul i32 %x, %x ret i32 %y }}\n"
    top = "define i32 @top(i32 %x) { %y = call i32 @f0(i32 %x) ret i32 %y }\n"
    with pytest.raises(ModuleError) as raised:
        placed(compiler, Module.from_ir(calls + last + top, "m"), always)
    assert str(raised.value) == (
        "module 'm': expected calls inlined into each other a few hundred levels deep at most, "
        "found more"
    )


@pytest.mark.parametrize(
    ("triple", "message"),
    [
        ("arm64-apple-macosx14", "expected an ELF object with DWARF, found Magic number does not"),
        ("riscv64-unknown-linux-gnu", "expected an ELF object with DWARF, found Unsupported"),
    ],
)
def test_objects_that_are_not_read(compiler: Compiler, triple: str, message: str) -> None:
    text = f'target triple = "{triple}"\n{LEVELS}'
    with pytest.raises(ModuleError) as raised:
        placed(compiler, Module.from_ir(text, "m"), always)
    assert str(raised.value).startswith(f"module 'm': {message}")


def test_lines_above_two_billion(compiler: Compiler, tmp_path: Path) -> None:
    module = Module.from_ir(IN_SOURCE.replace("line: 5,", "line: 4294967290,"))
    found = placed(compiler, module)
    with (tmp_path / "decisions.parquet").open("wb") as file:
        write_decisions(file, {"LLVM": [found]}, PROBLEM)
    rows = pq.read_table(tmp_path / "decisions.parquet").to_pylist()
    assert [call["line"] for row in rows for call in row["calls"]] == [4294967290, 9]


def test_shared_calls_of_different_callees(compiler: Compiler) -> None:
    """They are no one decision, though neither has an id."""
    found = placed(compiler, Module.from_ir(MERGED), always)
    shared = [each for each in found.decisions if not each.site.calls]
    assert [each.asked for each in shared] == [("top", "callee", (), 0)]
    other = replace(shared[0], site=Site("top", "other", ()), answer=0)
    before = replace(found, decisions=(shared[0],))
    change = compare_decisions(before, replace(found, decisions=(other,)))
    answers = [each.answers for function in change.functions for each in function.decisions]
    assert sorted(answers, key=str) == [(1, None), (None, 0)]


OUTLINED = """
void out(int);
int call(int, int, int, int, int, int, int, int);
int table[100];
static int common(int a, int b) {
  if (a > b) {
    out(a);
    out(b);
    return call(a, b, a + 1, b + 1, a * b, 3, a, b);
  }
  return b;
}
#define FUNCTION(n) \\
  int f##n(int a, int b) { \\
    int sum = 0; \\
    for (int i = 0; i < a; i++) { \\
      sum += common(i, b) * n; \\
      table[i] = sum; \\
      if (sum > n) \\
        out(sum); \\
    } \\
    return call(sum, a, b, n, sum + 1, sum + 2, sum + 3, sum + 4) + common(a, sum); \\
  }
FUNCTION(1) FUNCTION(2) FUNCTION(3) FUNCTION(4) FUNCTION(5) FUNCTION(6) FUNCTION(7) FUNCTION(8)
"""


@pytest.mark.e2e
def test_a_target_whose_code_debug_information_changes(compiler: Compiler, tmp_path: Path) -> None:
    """LLVM outlines on AArch64, and counts what describes frames."""
    clang = require("clang-22", "clang-22")
    (tmp_path / "f.c").write_text(OUTLINED)
    options = [
        *("--target=aarch64-linux-gnu", "-Oz", "-ffreestanding", "-fno-unwind-tables"),
        *("-fno-asynchronous-unwind-tables", "-Xclang", "-disable-llvm-passes", "-emit-llvm"),
    ]
    subprocess.run([clang, *options, "-c", "f.c", "-o", "f.bc"], cwd=tmp_path, check=True)
    module = Module.from_file(tmp_path / "f.bc")
    with pytest.raises(ModuleError) as raised:
        placed(compiler, module, lambda _: 0)
    assert re.fullmatch(
        r"module '.*f\.bc': expected \d+ bytes of code with debug information, too, found \d+: "
        "sites have no code on this target",
        str(raised.value),
    )


def test_a_decision_that_neither_policy_was_asked_for() -> None:
    with pytest.raises(InternalError):
        _ = OtherDecision(None, None).shown

"""Decisions with their places and code, and what two policies do differently."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from mlgo_gym.corpus._corpus import Corpus, Module
from mlgo_gym.corpus._packages import ModuleKey
from mlgo_gym.errors import EnvironmentSetupError
from mlgo_gym.evaluation._decision_changes import compare_decisions
from mlgo_gym.evaluation._decision_table import write_decisions
from mlgo_gym.evaluation._decisions import (
    PlacedDecisions,
    place_decisions,
    placed_decisions,
    with_executed,
)
from mlgo_gym.evaluation._evaluate import Setting
from mlgo_gym.evaluation._executed import executed_programs
from mlgo_gym.llvm._compiler import Compiler
from mlgo_gym.llvm._task import COMPILE
from mlgo_gym.problems._inlining_for_size import InliningForSize, always, default
from mlgo_gym.problems._observations import observation_dtype
from mlgo_gym.stream._events import Observation
from tests.conftest import require
from tests.llvm.test_sites import LEVELS

pq = pytest.importorskip("pyarrow.parquet")

PROBLEM = InliningForSize()


def placed(compiler: Compiler, module: Module, policy: object = default) -> PlacedDecisions:
    return place_decisions(compiler, module, PROBLEM, policy)  # type: ignore[arg-type]


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


def test_equal_policies_differ_in_nothing(compiler: Compiler, sample: Corpus) -> None:
    found = placed(compiler, sample["digest.c"])
    change = compare_decisions(found, placed(compiler, sample["digest.c"]))
    assert (change.first, change.functions) == (None, ())


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
        for name in observation_dtype(PROBLEM).names or ():
            assert row[name] == decision.observation[name].item()


def test_workers_that_tell_no_sites(
    compiler: Compiler, sample: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mlgo_gym.evaluation._decisions.COMPILE_WITH_DEBUG_INFO", COMPILE)
    with pytest.raises(EnvironmentSetupError) as error:
        placed(compiler, sample["digest.c"])
    assert str(error.value) == "sites: expected workers that tell them, as on Linux, found ''"


@pytest.mark.e2e
def test_how_often_the_code_of_decisions_is_executed(compiler: Compiler, sample: Corpus) -> None:
    """What is executed in functions is what valgrind counts in all, but for the rest's."""
    require("clang-22", "clang-22")
    require("valgrind", "valgrind")
    setting = Setting(PROBLEM)
    ((names, executed),) = executed_programs(sample, {"LLVM": default}, setting)
    assert names == ("", "LLVM")
    found = with_executed(placed(compiler, sample["json_read.c"]), executed)
    both = {"put_char", "put_span"}  # json_write.c has static functions of these names, too
    assert found.executed.keys() == found.functions.keys() - both
    for name in found.executed:
        function = found.functions[name]
        inside = executed[name].within(0, function.size_bytes)
        assert found.executed[name] == inside == sum(executed[name].counts.values())
        outer = [each for each in function.inlined if len(each.ids) == 1]
        parts = [executed[name].within(*each) for code in outer for each in code.ranges]
        assert 0 <= sum(parts) <= inside
    assert found.executed["parse_text"] > 1_000_000
    for each in found.decisions:
        assert (each.executed is None) == any(code.function in both for code in each.code)
    assert max(each.executed or 0 for each in found.decisions) > 100_000
    other = with_executed(placed(compiler, sample["bignum.c"]), executed)
    assert other.executed == {}
    assert {each.executed for each in other.decisions if each.code} == {None}

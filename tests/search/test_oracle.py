"""The oracle: what it finds is real, it gets no worse, and it goes on where it was."""

from __future__ import annotations

import itertools
import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mlgo_gym.corpus._corpus import Corpus, Module
from mlgo_gym.errors import OptionsError
from mlgo_gym.llvm._compiler import Compiler
from mlgo_gym.problems._inlining_for_size import InliningForSize, always, default, never
from mlgo_gym.rollout._replay import replay
from mlgo_gym.rollout._trace import Trace, trace_path
from mlgo_gym.search import _corpus_search
from mlgo_gym.search._corpus_search import ModuleSearch, search_corpus
from mlgo_gym.search._goal import LEVELS, USER_CLASSES, Choice, SearchSetting, group_of
from mlgo_gym.search._oracle import _ORDER, Oracle, small
from mlgo_gym.stream._training_log import Observation
from tests.search.test_attribution import _TWO_CALLERS

PROBLEM = InliningForSize()
BASES = {"default": default, "never": never, "small": small}


def steps() -> Callable[[], float]:
    """A clock that goes on by one each time it is looked at: budgets that do not depend on time."""
    return itertools.count().__next__


def setting(budget_s: float) -> SearchSetting:
    return SearchSetting(budget_s, clock=steps())


def all_observations(compiler: Compiler, module: Module) -> Iterator[Observation]:
    with compiler.start(module, PROBLEM) as compilation:
        while (observation := compilation.next_observation()) is not None:
            yield observation
            compilation.answer(default(observation))


@pytest.mark.e2e
def test_it_finds_what_replays(compiler: Compiler, sample: Corpus) -> None:
    module = sample["digest.c"]
    oracle = Oracle(compiler, module, setting(1_000), PROBLEM)
    found = list(oracle.improvements())
    sizes = [each.size_bytes for each in found]
    assert sizes == sorted(set(sizes), reverse=True)
    assert sizes[-1] < found[0].default_size_bytes
    assert oracle.compilations > 20
    for each in (found[0], found[-1]):
        result = replay(compiler, Trace.from_bytes(each.trace.to_bytes()), module)
        assert result.text_size_bytes == each.size_bytes
    # The choice is a policy: it makes the same object by itself.
    policy = found[-1].choice.policy(BASES)
    again = compiler.compile_module(module, problem=PROBLEM, policy=policy)
    assert again.object_sha256 == found[-1].trace.object_sha256


@pytest.mark.e2e
def test_it_is_never_worse_than_its_starts(compiler: Compiler, sample: Corpus) -> None:
    for name in ("frame_stream.c", "json_write.c"):
        module = sample[name]
        *_, last = Oracle(compiler, module, setting(400), PROBLEM, policy=always).improvements()
        for start in (default, never, small, always):
            result = compiler.compile_module(module, problem=PROBLEM, policy=start)
            assert last.size_bytes <= result.text_size_bytes


@pytest.mark.e2e
def test_groups_are_searched_and_combined(compiler: Compiler, sample: Corpus) -> None:
    """From LLVM's default as it is, without limits, only groups are left to search."""
    module = sample["frame_stream.c"]
    oracle = Oracle(compiler, module, setting(1_000), PROBLEM, start=Choice("default"))
    *_, last = oracle.improvements()
    assert last.choice.flips
    assert last.size_bytes < last.default_size_bytes


def test_a_module_without_decisions(compiler: Compiler) -> None:
    module = Module.from_ir('target triple = "x86_64-pc-linux-gnu"\n')
    (found,) = Oracle(compiler, module, SearchSetting(budget_s=10), PROBLEM).improvements()
    assert (found.size_bytes, found.trace.decisions) == (0, 0)


def test_choices_there_and_back(compiler: Compiler, sample: Corpus) -> None:
    observations = list(all_observations(compiler, sample["hash_map.c"]))
    call = group_of("call", observations[3])
    choice = Choice("never").with_limit(2, 40).with_flips({call: 1})
    again = Choice.from_json(json.loads(json.dumps(choice.to_json())))
    assert again == choice
    policy = again.policy(BASES)
    for each in observations:
        users, cost = int(each["callee_users"][0]), int(each["cost_estimate"][0])
        by_limit = USER_CLASSES[1] < users <= USER_CLASSES[2] and cost < 40
        assert policy(each) == int(group_of("call", each) == call or by_limit)
    for level in LEVELS:
        assert len({group_of(level, each) for each in observations}) > 1


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({}, "choice: expected base, limits and flips: KeyError('flips')"),
        (
            {"base": "default", "limits": [], "flips": [["call", "xx", 1]]},
            "choice: expected base, limits and flips: ValueError('non-hexadecimal number found in "
            "fromhex() arg at position 0')",
        ),
        ({"base": "default", "limits": [1], "flips": []}, "limits: expected 6, found 1"),
        (
            {"base": "default", "limits": [None] * 6, "flips": [["galaxy", "00", 1]]},
            "level: expected one of single, call, callee, caller, found 'galaxy'",
        ),
    ],
)
def test_choices_that_are_none(value: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionsError) as caught:
        Choice.from_json(value)
    assert message in str(caught.value)


def test_a_budget_of_nothing() -> None:
    with pytest.raises(OptionsError) as caught:
        SearchSetting(budget_s=0)
    assert str(caught.value) == "budget: expected a number above 0, found 0"


def test_a_start_that_is_not_known(compiler: Compiler, sample: Corpus) -> None:
    with pytest.raises(OptionsError) as caught:
        Oracle(compiler, sample["frame_stream.c"], setting(1), PROBLEM, start=Choice("given"))
    assert str(caught.value) == (
        "start: expected one of default, never, small as base, found 'given'"
    )


def searched(
    corpus: Corpus, folder: Path, budget_s: float = 300, **how: Any
) -> dict[str, ModuleSearch]:
    searches = search_corpus(corpus, folder, PROBLEM, setting(budget_s), **how)
    return {each.module: each for each in searches}


@pytest.mark.e2e
def test_a_corpus_is_searched_and_gone_on_with(small: Corpus, tmp_path: Path) -> None:
    small = small.only(["json_write.c", "frame_stream.c"])
    first = searched(small, tmp_path, jobs=2)
    assert set(first) == set(small)
    for name, each in first.items():
        trace = Trace.load(trace_path(tmp_path, name))
        assert each.error is None
        assert trace.text_size_bytes == each.size_bytes <= each.default_size_bytes
        assert trace.observation(0)
        with Compiler() as compiler:
            replay(compiler, trace, small[name])
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert searched(small, tmp_path) == first  # the budget is spent
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    longer = searched(small, tmp_path, budget_s=450)
    for name, each in longer.items():
        assert each.size_bytes <= first[name].size_bytes
        assert each.spent_s > first[name].spent_s
        assert Trace.load(trace_path(tmp_path, name)).text_size_bytes == each.size_bytes
    # Little time to go on with does not lose what was found before.
    for name, each in searched(small, tmp_path, budget_s=455).items():
        assert each.size_bytes <= longer[name].size_bytes


@pytest.mark.e2e
def test_other_settings_start_anew(small: Corpus, tmp_path: Path) -> None:
    corpus = small.only(["frame_stream.c"])
    searched(corpus, tmp_path)
    (other,) = searched(corpus, tmp_path, opt_level="O2").values()
    assert Trace.load(trace_path(tmp_path, "frame_stream.c")).settings["opt_level"] == "O2"
    assert other.error is None


@pytest.mark.parametrize("value", [-1, 1e308, 10**90, float("nan")])
def test_numbers_that_no_search_has_found(value: float) -> None:
    with pytest.raises(ValueError, match="^expected a number from 0 to below 9007199254740992"):
        _corpus_search._number(value)


@pytest.mark.e2e
def test_failures_are_reported(small: Corpus, tmp_path: Path) -> None:
    (tmp_path / "frame_stream.c.search.json").write_text("{}")
    (tmp_path / "hash_map.c.search.json").mkdir()
    found = searched(small, tmp_path)
    assert "expected a search's record: KeyError('module_sha256')" in str(
        found["frame_stream.c"].error
    )
    assert "expected a search's record: IsADirectoryError" in str(found["hash_map.c"].error)
    assert found["json_write.c"].error is None
    with pytest.raises(OptionsError, match="^jobs: expected a number above 0, found 0$"):
        searched(small, tmp_path, jobs=0)
    with pytest.raises(OptionsError, match="^budget: expected a number above 0, found 0$"):
        searched(small, tmp_path, budget_s=0)
    missing = searched(replace(small, names=("x",)), tmp_path)["x"]
    assert str(missing.error).startswith("module 'x': cannot read ")


@pytest.mark.e2e
def test_closing_early_ends_the_workers(small: Corpus, tmp_path: Path) -> None:
    searches = search_corpus(small, tmp_path, PROBLEM, setting(300), jobs=2)
    assert next(searches).error is None
    searches.close()


@pytest.mark.e2e
def test_a_search_to_its_end_begins_again(compiler: Compiler) -> None:
    """Three calls are soon tried at every level: what is left of the budget goes round again."""
    module = Module.from_ir(_TWO_CALLERS, "two.c")
    oracle = Oracle(compiler, module, setting(280), PROBLEM)
    found = list(oracle.improvements())
    assert [each.size_bytes for each in found] == [15, 14]
    assert [each.default_size_bytes for each in found] == [15, 15]
    assert list(found[-1].choice.flips.values()) == [0]
    groups = len(_ORDER) * 3 * 2  # at most: three calls, two answers
    assert oracle.compilations > found[-1].compilations + groups


def test_more_time_is_more_of_the_same(compiler: Compiler) -> None:
    """Wherever the time ends, in a compilation or in a branch, what was found before counts."""
    module = Module.from_ir(_TWO_CALLERS, "two.c")
    before, sizes = 0, []
    for budget_s in range(14, 62, 8):
        oracle = Oracle(compiler, module, setting(budget_s), PROBLEM, start=Choice("default"))
        sizes.append(min(each.size_bytes for each in oracle.improvements()))
        assert oracle.compilations >= before
        before = oracle.compilations
    assert sizes == sorted(sizes, reverse=True)
    assert (sizes[0], sizes[-1]) == (15, 14)


def test_the_given_policy_is_a_start(compiler: Compiler) -> None:
    module = Module.from_ir(_TWO_CALLERS, "two.c")
    *_, best = Oracle(compiler, module, setting(160), PROBLEM).improvements()
    given = best.choice.policy(BASES)
    oracle = Oracle(compiler, module, setting(30), PROBLEM, policy=given)
    found = list(oracle.improvements())
    assert [each.choice.base for each in found] == ["default", "given"]
    assert [each.size_bytes for each in found] == [15, best.size_bytes]
    assert found[-1].trace.object_sha256 == best.trace.object_sha256
    in_no_time = Oracle(compiler, module, setting(1e-9), PROBLEM, policy=given).improvements()
    assert [each.size_bytes for each in in_no_time] == [15, best.size_bytes]
    again = Oracle(
        compiler, module, setting(30), PROBLEM, policy=given, start=found[-1].choice
    ).improvements()
    assert [each.size_bytes for each in again] == [15, 14]


def test_a_record_that_cannot_be_written(sample: Corpus, tmp_path: Path) -> None:
    """The module's name is short enough for a trace, and too long for what is beside it."""
    folder = tmp_path / "corpus"
    folder.mkdir()
    name = "m" * 246
    for suffix in ("bc", "cmd"):
        shutil.copy(sample.folder / f"frame_stream.c.{suffix}", folder / f"{name}.{suffix}")
    found = searched(Corpus(folder, (name,)), tmp_path / "found", budget_s=5)[name]
    assert str(found.error).endswith("File name too long")

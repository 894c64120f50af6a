"""Many flips at once: names, disjoint flips, and bytes that add up."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from mlgo_gym.corpus._corpus import Corpus, Module
from mlgo_gym.corpus._functions import function_sizes
from mlgo_gym.errors import EnvironmentSetupError, ModuleError
from mlgo_gym.llvm._compiler import Compiler
from mlgo_gym.problems._inlining_for_size import InliningForSize, default
from mlgo_gym.problems._policy import FunctionPolicy, Policy, SentPolicy
from mlgo_gym.problems._problem import Problem
from mlgo_gym.runners._policy import WorkerPolicy
from mlgo_gym.search._attribution import Flip, NamingCompiler, disjoint_flips, effects_of
from mlgo_gym.stream._training_log import Observation
from tests.search.recompiled import saved_by_single_flips

_TWO_CALLERS = """
target triple = "x86_64-unknown-linux-gnu"
define internal i32 @leaf(i32 %x) minsize optsize {
  %y = mul i32 %x, %x
  ret i32 %y
}
define i32 @first(i32 %x) minsize optsize {
  %y = call i32 @leaf(i32 %x)
  ret i32 %y
}
define i32 @second(i32 %x) minsize optsize {
  %y = call i32 @leaf(i32 %x)
  %z = call i32 @first(i32 %y)
  ret i32 %z
}
"""


def test_calls_have_their_names(compiler: Compiler) -> None:
    base = NamingCompiler(compiler, Module.from_ir(_TWO_CALLERS), lambda _: 0).compile()
    assert [(each.caller, each.callee) for each in base.decisions] == [
        ("first", "leaf"),
        ("second", "leaf"),
        ("second", "first"),
    ]
    assert [each.site for each in base.decisions] == [("first", 0), ("second", 0), ("second", 1)]
    assert set(base.functions) == {"leaf", "first", "second"}
    assert sum(each.size_bytes for each in base.functions.values()) <= base.text_size_bytes


@pytest.mark.e2e
def test_naming_changes_nothing(compiler: Compiler, sample: Corpus) -> None:
    module = sample["scene.cpp"]
    base = NamingCompiler(compiler, module, default).compile()
    with Compiler() as other:
        assert base.text_size_bytes == other.compile_module(module).text_size_bytes


def test_flips_that_go_together_do_not_touch(compiler: Compiler, sample: Corpus) -> None:
    base = NamingCompiler(compiler, sample["scene.cpp"], default).compile()
    for by_callee in (False, True):
        flips = disjoint_flips(base, np.random.default_rng(0), lambda _: 1.0, by_callee=by_callee)
        assert len(flips) > 10
        touched = [name for flip in flips for name in flip.functions]
        assert len(touched) == len(set(touched))
        for flip in flips:
            assert {base.decisions[index].callee for index in flip.decisions} <= flip.functions
    assert not disjoint_flips(base, np.random.default_rng(0), lambda _: 0.0, by_callee=False)


@pytest.mark.e2e
@pytest.mark.parametrize("name", ["scene.cpp", "json_read.c", "graph.cpp"])
def test_the_bytes_add_up(compiler: Compiler, sample: Corpus, name: str) -> None:
    """To a byte, of some hundred."""
    naming = NamingCompiler(compiler, sample[name], default)
    base = naming.compile()
    flips = disjoint_flips(base, np.random.default_rng(1), lambda _: 1.0, by_callee=False)
    effects = effects_of(naming, base, flips)
    assert len(effects) == len(flips)
    together = naming.compile(
        {
            base.decisions[flip.decisions[0]].site: 1 - base.decisions[flip.decisions[0]].action
            for flip in flips
        }
    )
    attributed = sum(effect.total() for effect in effects)
    difference = base.text_size_bytes - together.text_size_bytes
    assert difference != 0
    assert abs(difference) > 100
    assert attributed == pytest.approx(difference, abs=1)


@pytest.mark.e2e
def test_single_flips_are_what_compiling_again_says(compiler: Compiler, sample: Corpus) -> None:
    module = sample["frame_stream.c"]
    with Compiler() as other:
        exact = saved_by_single_flips(other, module, default)
    naming = NamingCompiler(compiler, module, default)
    base = naming.compile()
    found = {
        index: effect.total()
        for seed in range(4)
        for effect in effects_of(
            naming,
            base,
            disjoint_flips(base, np.random.default_rng(seed), lambda _: 1.0, by_callee=False),
        )
        for index in effect.flip.decisions
    }
    assert len(found) > 5
    assert found == {index: exact[index] for index in found}


def test_a_flip_that_did_not_come_again_is_left_out(compiler: Compiler) -> None:
    naming = NamingCompiler(compiler, Module.from_ir(_TWO_CALLERS), lambda _: 0)
    base = naming.compile()
    elsewhere = replace(base.decisions[0], site=("first", 7))
    moved = replace(base, decisions=(elsewhere, *base.decisions[1:]))
    assert effects_of(naming, moved, [Flip((0,), frozenset({"leaf"}))]) == []
    kept = Flip((0,), frozenset({"leaf", "first"}))
    assert len(effects_of(naming, base, [kept])) == 1


def test_a_broken_module_is_an_error(compiler: Compiler) -> None:
    with pytest.raises(ModuleError, match="module 'broken'"):
        NamingCompiler(compiler, Module("broken", b"nothing"), default).compile()


def test_sizes_of_what_is_no_elf() -> None:
    assert function_sizes(b"") == {}
    assert function_sizes(b"no object") == {}


def test_a_name_that_llvm_may_not_change(compiler: Compiler) -> None:
    text = _TWO_CALLERS.replace("@leaf", r'@"\01leaf \22é"')
    base = NamingCompiler(compiler, Module.from_ir(text), lambda _: 0).compile()
    assert base.decisions[0].callee == 'leaf "é'
    assert base.decisions[0].callee in base.functions


def by_turns(observation: Observation) -> int:
    return observation.index % 2


@pytest.mark.e2e
def test_observations_have_llvms_numbers_in_the_worker(sample: Corpus) -> None:
    """Whatever contexts they have."""
    found = []
    for policy in (by_turns, WorkerPolicy(by_turns)):
        with Compiler() as each:
            found.append(NamingCompiler(each, sample["digest.c"], policy).compile())
    assert found[0] == found[1]
    assert {each.action for each in found[0].decisions} == {0, 1}


def until_a_large_one(observation: Observation) -> int:
    """LLVM's default, and what nobody may answer where the callee is large: that is left."""
    return 2 if observation["callee_basic_block_count"][0] > 20 else default(observation)


class _Left(FunctionPolicy):
    """The default here, and the same in the worker up to a point."""

    def for_worker(self, problem: Problem) -> SentPolicy | None:
        return WorkerPolicy(until_a_large_one).for_worker(problem)


@pytest.mark.e2e
@pytest.mark.parametrize("policy", [WorkerPolicy(default), _Left(default)])
def test_flips_in_the_worker(policy: Policy, sample: Corpus) -> None:
    """They are those here, to the end or to where the worker's policy leaves it."""
    with Compiler() as one, Compiler() as other:
        here = NamingCompiler(one, sample["json_read.c"], default)
        there = NamingCompiler(other, sample["json_read.c"], policy)
        base = here.compile()
        assert there.compile() == base
        assert len(base.decisions) > 30
        flips = {each.site: 1 - each.action for each in base.decisions[::3]}
        flipped = there.compile(flips)
        assert flipped == here.compile(flips) != base


def test_without_names(compiler: Compiler, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mlgo_gym.search._attribution.replace", lambda task, **_: task)
    with pytest.raises(EnvironmentSetupError) as caught:
        NamingCompiler(compiler, Module.from_ir(_TWO_CALLERS), lambda _: 0).compile()
    assert str(caught.value) == (
        "names: expected those of caller and callee, found ['']; workers tell them on Linux"
    )


@pytest.mark.e2e
@pytest.mark.parametrize("vocabulary", ["ones", "one-hot"])
def test_names_where_there_are_embeddings(
    vocabulary: str, compiler: Compiler, sample: Corpus
) -> None:
    """The same as without them."""
    found = []
    for problem in (InliningForSize(), InliningForSize(ir2vec=vocabulary)):
        naming = NamingCompiler(compiler, sample["scene.cpp"], default, problem)
        found.append([(each.site, each.callee) for each in naming.compile().decisions])
    assert found[0] == found[1]
    assert len(found[0]) > 100

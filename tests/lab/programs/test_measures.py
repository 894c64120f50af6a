"""Rewards of programs that run, and mixes of measures."""

from __future__ import annotations

import re
from contextlib import closing
from dataclasses import replace
from typing import Any

import gymnasium
import pytest

from mlgo_gym.corpus._corpus import SAMPLE_CORPUS, Corpus
from mlgo_gym.envs._allocation_env import AllocationEnv
from mlgo_gym.envs._compilation_env import CompilationEnv
from mlgo_gym.envs._making import make_env
from mlgo_gym.errors import ModuleError, OptionsError, WorkloadError
from mlgo_gym.lab.programs._program_scores import ProgramScores, layouts_change, program_change
from mlgo_gym.lab.programs.commands._show_programs import programs_record
from mlgo_gym.llvm._compiler import Compiler
from mlgo_gym.problems._inlining_for_size import InliningForSize
from mlgo_gym.problems._regalloc_eviction import RegallocEviction
from mlgo_gym.rollout._measures import AllocationCost, TextSize, reward_of
from mlgo_gym.rollout._named import Mix, measure_named
from mlgo_gym.testing import check_measure
from tests.lab.programs.conftest import ADDRESS, CALLS, DESCRIPTION, MakeCorpus


def play(env: gymnasium.Env, action: int | None, module: str) -> tuple[float, dict]:  # type: ignore[type-arg]
    """The reward of one answer, or of LLVM's own, and the last information."""
    _, info = env.reset(options={"module": module})
    while True:
        chosen = info["default_advice"] if action is None else action
        _, reward, has_ended, is_cut, info = env.step(chosen)
        if has_ended or is_cut:
            return float(reward), info


@pytest.mark.e2e
def test_episodes(corpus: MakeCorpus) -> None:
    made = corpus(DESCRIPTION, {"twice.c": CALLS})
    env = make_env("inlining-for-size", made, reward="text:0.5,instructions:2")
    try:
        reward, info = play(env, None, "twice.c")
        assert reward == 0
        reward, info = play(env, 0, "twice.c")
    finally:
        env.close()
    assert isinstance(env, CompilationEnv)
    text = info["text_size_bytes"] / info["baseline_text_size_bytes"]
    expected = 1 - text**0.2 * (info["instructions"] / info["baseline_instructions"]) ** 0.8
    assert reward == pytest.approx(expected) != 0
    assert reward == pytest.approx(reward_of(info["mix"], info["baseline_mix"]))


@pytest.mark.e2e
def test_modules_that_are_not_reached(corpus: MakeCorpus) -> None:
    unreached = CALLS.replace("twice", "thrice").replace("add", "sum")
    modules = {"twice.c": CALLS, "thrice.c": unreached, "apart.c": unreached}
    env = CompilationEnv(
        InliningForSize(),
        corpus(f'exclude = ["apart.c"]\n{DESCRIPTION}', modules),
        reward="instructions",
    )
    try:
        for seed in range(3):
            assert env.reset(seed=seed)[1]["module"] == "twice.c"
        expected = "expected a workload that reaches it, found none of twice"
        with pytest.raises(ModuleError) as caught:
            env.reset(options={"module": "thrice.c"})
        assert str(caught.value) == f"module 'thrice.c': {expected}"
        expected = "expected it in a workload's program, found it in none of twice"
        with pytest.raises(ModuleError) as caught:
            env.reset(options={"module": "apart.c"})
        assert str(caught.value) == f"module 'apart.c': {expected}"
    finally:
        env.close()


@pytest.mark.e2e
def test_a_wrong_output_is_no_reward(corpus: MakeCorpus) -> None:
    """The program tells its own inlining by the address that it returns to."""
    env = make_env(
        "inlining-for-size", corpus(DESCRIPTION, {"twice.c": ADDRESS}), reward="instructions"
    )
    try:
        reward, info = play(env, 0, "twice.c")
    finally:
        env.close()
    assert reward == -1, "as an episode that LLVM does not bring to its end"
    assert "expected standard output of SHA-256" in info["error"]


@pytest.mark.e2e
def test_branches_share_programs(corpus: MakeCorpus) -> None:
    """Whichever is closed first, and if twice."""
    made = corpus(DESCRIPTION, {"twice.c": CALLS})
    env = CompilationEnv(InliningForSize(), made, reward="instructions,cost:1")
    env.reset(options={"module": "twice.c"})
    branch = env.fork()
    env.close()
    env.close()
    is_over = False
    while not is_over:
        _, reward, is_over, is_cut, info = branch.step(0)
        assert not is_cut
    branch.close()
    assert reward != 0
    assert info["instructions"] > info["baseline_instructions"]
    with pytest.raises(FileNotFoundError):
        branch.measure.score(replace(branch._baseline(), object_sha256="0", object_bytes=b""))


def test_a_vector_of_environments_shares_programs() -> None:
    envs = gymnasium.make_vec(
        "mlgo_gym/InliningForSize-v0", num_envs=2, reward="text", corpus=str(SAMPLE_CORPUS)
    )
    try:
        first, second = envs.unwrapped.envs  # type: ignore[attr-defined]
        assert first.measure is second.measure
    finally:
        envs.close()


def test_eviction_by_objects() -> None:
    """Register allocation by what programs execute: whole modules, and no mask of functions."""
    env = make_env(RegallocEviction(), reward="text")
    env.close()
    assert isinstance(env, CompilationEnv)


@pytest.mark.parametrize(
    "text",
    ["speed", "text:0.5,speed:0.5", "text,text", "text:0", "text:-1", "text:x", "", "text:."],
)
def test_names_that_are_none(text: str) -> None:
    with pytest.raises(OptionsError) as caught:
        measure_named(text, Corpus.load(SAMPLE_CORPUS))
    assert str(caught.value) == (
        "reward: expected measures out of text, linked, linked_text_gc, linked_text_icf, "
        "box, box-time, cost, estimate, instructions, each "
        f"once, several with a weight above 0 as in 'text:0.5,instructions:0.5', found {text!r}"
    )


@pytest.mark.parametrize("reward", [5, TextSize])
def test_what_is_no_reward(reward: Any) -> None:
    with pytest.raises(OptionsError) as caught:
        CompilationEnv(InliningForSize(), reward=reward)
    expected = "a name or an instance of mlgo_gym.rollout.Measure"
    assert str(caught.value) == f"reward: expected {expected}, found {reward!r}"


def test_a_measure_that_is_the_problem_s_own() -> None:
    env = make_env(RegallocEviction(), reward=AllocationCost())
    env.close()
    assert isinstance(env, AllocationEnv)


def test_a_corpus_without_workloads(corpus: MakeCorpus) -> None:
    made = corpus(DESCRIPTION)
    (made.folder / "workloads" / "workload.toml").unlink()
    with pytest.raises(WorkloadError, match=re.escape("found none")):
        measure_named("cost", made)
    with pytest.raises(WorkloadError, match=re.escape("found none")):
        make_env("inlining-for-size", made, reward="instructions")


@pytest.mark.parametrize("reward", ["instructions", "cost", "text:0.5,instructions:2,linked"])
def test_measures_keep_the_contract(corpus: MakeCorpus, reward: str) -> None:
    made = corpus(DESCRIPTION, {"twice.c": CALLS})
    with closing(measure_named(reward, made)) as measure:
        check_measure(measure, made["twice.c"], InliningForSize())


def test_a_measure_says_what_its_programs_are_made_of(corpus: MakeCorpus) -> None:
    made = corpus(DESCRIPTION, {"twice.c": CALLS})
    description = made.folder / "workloads" / "workload.toml"
    with closing(measure_named("instructions,cost:1,linked", made)) as measure:
        before = measure.context()
        assert before.keys() == {"programs_sha256", "package_sha256"}
        description.write_text(description.read_text() + "\n")
        after = measure.context()
    assert before["package_sha256"] == after["package_sha256"]
    assert before["programs_sha256"] != after["programs_sha256"]


@pytest.mark.e2e
def test_an_equal_object_is_not_run_again(corpus: MakeCorpus) -> None:
    made = corpus(DESCRIPTION, {"twice.c": CALLS})
    measure = measure_named("instructions", made)
    with Compiler() as compiler:
        result = compiler.compile_module(made["twice.c"], keep_object=True)
    before = measure.score(result)
    assert before > 1000
    measure.close()  # the programs are gone
    assert measure.score(result) == before
    assert Mix({measure: 2.0}).score(result) == pytest.approx(before)


def test_two_layouts_have_no_interval() -> None:
    """They vary too little: of two equal ones, nothing at all."""
    assert layouts_change([1.0, 1.1], [1.0, 1.2]).interval is None
    assert layouts_change([1.0, 1.1, 1.2], [1.0, 1.2, 1.1]).interval is not None


def test_nothing_measured_is_no_change() -> None:
    failed = [ProgramScores("p", "w", error=WorkloadError("w", "no"))]
    assert program_change(failed, "never", "size").to_json() == {"change": None, "interval": None}
    record = programs_record(failed, ["never"], ["size"], 0)
    assert record["policies"]["never"]["size"] == {"change": None, "interval": None}

"""Live ranges: which one asks is told by its register, and nothing else changes."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from mlgo_gym.corpus._corpus import Corpus, Module
from mlgo_gym.envs._making import make_env
from mlgo_gym.errors import OptionsError
from mlgo_gym.llvm._compiler import Compiler, options_of
from mlgo_gym.llvm._task import OPTIMIZE
from mlgo_gym.problems._policy import WatchedPolicy
from mlgo_gym.problems._regalloc_eviction import RegallocEviction, first_legal, keep
from mlgo_gym.rollout._replay import RecordedContexts, record, replay
from mlgo_gym.rollout._trace import Trace
from tests.conftest import require

TOLD = RegallocEviction(live_range=True)


@pytest.fixture
def module(sample: Corpus) -> Module:
    return sample["codec_text.c"]


def ranges(compiler: Compiler, module: Module, policy: object = keep) -> list[tuple[str, int]]:
    found = []
    with compiler.start(module, TOLD) as compilation:
        while (observation := compilation.next_observation()) is not None:
            found.append((observation.context, int(observation["live_range"][0])))
            compilation.answer(policy(observation))  # type: ignore[operator]
    return found


def test_they_are_llvm_s_registers(compiler: Compiler, module: Module, tmp_path: Path) -> None:
    """LLVM prints, before registers are allocated, which there are."""
    optimized = tmp_path / "optimized.bc"
    optimized.write_bytes(compiler.produce(module, None, OPTIMIZE).data)
    llc = [require("llc-22", "llvm-22"), "-O2", "-relocation-model=pic", "-stop-before=greedy"]
    printed = subprocess.run(
        [*llc, "-o", "-", optimized], check=True, capture_output=True, text=True
    ).stdout
    known = {}
    for text in printed.split("\n---\n"):
        if name := re.search(r"^name: +(\S+)$", text, re.MULTILINE):
            known[name[1]] = {int(each) for each in re.findall(r"- \{ id: (\d+), class", text)}
    asked = ranges(compiler, module)
    assert len(asked) > 20
    early = [number in known[name] for name, number in asked if number <= max(known[name])]
    assert len(early) > 10
    assert all(early)


def test_nothing_else_changes(compiler: Compiler, module: Module) -> None:
    plain, told = (
        record(compiler, module, each, first_legal, keep_observations=True)
        for each in (RegallocEviction(), TOLD)
    )
    assert (plain.advice, plain.object_sha256) == (told.advice, told.object_sha256)
    assert [each.name for each in told.features[-2:]] == ["progress", "live_range"]
    replay(compiler, Trace.from_bytes(told.to_bytes()), module)


def test_the_first_is_the_same_under_every_policy(compiler: Compiler, module: Module) -> None:
    one, other = ranges(compiler, module), ranges(compiler, module, first_legal)
    assert one[0] == other[0]
    assert one != other
    assert ranges(compiler, module) == one


def test_an_environment_says_which(sample: Corpus, compiler: Compiler, module: Module) -> None:
    with make_env(TOLD, sample.only([module.name])) as env:
        observation, info = env.reset(seed=1, options={"module": module.name})
        assert "live_range" not in observation
        asked = {number for name, number in ranges(compiler, module) if name == info["context"]}
        assert int(env.besides["live_range"][0]) in asked


@pytest.mark.parametrize("level", ["Oz", "O3"])
def test_functions_that_are_left_are_llvm_s_own(
    compiler: Compiler, module: Module, level: str
) -> None:
    problem, options = RegallocEviction(), options_of(module, level)
    answers: dict[str, list[bytes]] = {}
    watched = WatchedPolicy(
        first_legal,
        problem,
        lambda asked, advice: answers.setdefault(asked.context, []).append(advice),
    )
    plain = compiler.compile_module(module, options)
    first = compiler.compile_module(module, options, problem=problem, policy=watched)
    name, *others = answers
    assert others
    made = {
        left: compiler.compile_module(
            module,
            options,
            problem=problem,
            policy=RecordedContexts(
                problem, {each: answers[each] for each in answers if each not in left}, left
            ),
        )
        for left in ((), (name,), tuple(answers))
    }
    assert made[()].object_sha256 == first.object_sha256 != plain.object_sha256
    assert made[tuple(answers)].object_sha256 == plain.object_sha256
    assert made[tuple(answers)].decisions == 0
    assert made[name,].decisions == first.decisions - len(answers[name])
    again = compiler.compile_module(module, options, problem=problem, policy=first_legal)
    assert again.object_sha256 == first.object_sha256  # nothing stays left


def test_settings() -> None:
    assert "live_range" not in RegallocEviction().settings()
    assert TOLD.settings()["live_range"] is True
    with pytest.raises(OptionsError, match="^live_range: expected True or False, found 1$"):
        RegallocEviction(live_range=1)  # type: ignore[arg-type]

"""The eviction environment: episodes, rewards, masks, limits, and Gymnasium's own checks."""

from __future__ import annotations

import json
import math
import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

from mlgo_gym.corpus._corpus import Corpus, Module
from mlgo_gym.envs._allocation_env import AllocationEnv
from mlgo_gym.envs._making import make_env
from mlgo_gym.errors import CorpusError, ModuleError, OptionsError, UsageError
from mlgo_gym.llvm import _compilation
from mlgo_gym.llvm._waiting import run_to_end
from mlgo_gym.problems._regalloc_eviction import RegallocEviction, first_legal
from mlgo_gym.runners._base import ScriptedRunner
from mlgo_gym.runners._policy import RunnerPolicy
from tests.waiting import time_is_up

ID = "mlgo_gym/RegallocEviction-v0"
SILENT = "define i32 @f(i32 %x) {\n  ret i32 %x\n}\n"
EMPTY = "@x = global i32 1\n"


@pytest.fixture
def two(sample: Corpus) -> Corpus:
    """Two modules: one with two functions that ask, one with one."""
    return Corpus(sample.folder, ("expr_vm.c", "lru_cache.cpp"))


@pytest.fixture
def env(two: Corpus) -> Iterator[AllocationEnv]:
    env = AllocationEnv(RegallocEviction(), two, illegal_action="error", render_mode="ansi")
    yield env
    env.close()


def finish(env: AllocationEnv) -> tuple[float, dict[str, Any]]:
    """Take the first legal position until the end; the last reward and information."""
    while True:
        action = int(np.flatnonzero(env.action_masks())[0])
        _, reward, terminated, truncated, info = env.step(action)
        if terminated or truncated:
            return reward, info
        assert reward == 0.0


def test_an_episode_is_a_function(env: AllocationEnv) -> None:
    observation, info = env.reset(options={"module": "expr_vm.c"})
    assert tuple(observation) == RegallocEviction().layout.feature_names
    assert observation in env.observation_space
    assert (info["module"], info["decision"], env.skipped) == ("expr_vm.c", 0, {})
    assert info["context"] == info["function"]
    assert info["action_mask"].tolist() == observation["mask"][0].tolist()
    baseline = info["baseline_score"]
    reward, info = finish(env)
    assert info["decision"] > 1
    assert reward == pytest.approx(1 - info["score"] / baseline)
    assert env.settings["max_eviction_count"] == 100
    assert info["action_mask"].sum() == 1
    assert info["action_mask"][32] == 1


def test_reset_goes_on_to_the_next_function(env: AllocationEnv) -> None:
    seen = [env.reset(seed=1)[1]]
    seen += [env.reset()[1] for _ in range(11)]
    names = [(info["module"], info["function"]) for info in seen]
    rounds = [names[start : start + 3] for start in range(0, 12, 3)]
    assert {tuple(sorted(each)) for each in rounds} == {tuple(sorted(rounds[0]))}
    assert len({tuple(each) for each in rounds}) == 2  # modules come in either order
    assert {module for module, _ in names} == set(env.corpus.names)
    again = [env.reset(seed=1)[1]] + [env.reset()[1] for _ in range(11)]
    assert [(info["module"], info["function"]) for info in again] == names


def test_functions_that_are_asked_for(env: AllocationEnv) -> None:
    _, info = env.reset(options={"module": "expr_vm.c", "function": "expr_disassemble"})
    assert info["function"] == "expr_disassemble"
    _, info = env.reset(options={"function": "expr_run"})
    assert (info["module"], info["function"]) == ("expr_vm.c", "expr_run")


@pytest.mark.e2e
def test_observations_hold_no_nan(env: AllocationEnv, sample: Corpus) -> None:
    """LLVM sends NaN for live ranges that may not be spilled; the log keeps what it sent."""
    sent = 0
    for name, function in (("codec_text.c", "base64_decode"), ("expr_vm.c", "expr_run")):
        observation, _ = env.reset(options={"module": sample[name], "function": function})
        ended = False
        while not ended:
            assert env._pending is not None
            raw = env._pending["use_def_density"][0]
            sent += int(np.isnan(raw).sum())
            assert observation["use_def_density"][0][np.isnan(raw)].tolist() == [1.0] * int(
                np.isnan(raw).sum()
            )
            assert observation in env.observation_space
            observation, _, terminated, truncated, _ = env.step(int(env.action_masks().argmax()))
            ended = terminated or truncated
    assert sent > 0


def test_illegal_actions_are_errors(env: AllocationEnv) -> None:
    env.reset(seed=0)
    legal = [int(each) for each in np.flatnonzero(env.action_masks())]
    illegal = next(each for each in range(33) if each not in legal)
    with pytest.raises(UsageError) as caught:
        env.step(illegal)
    assert str(caught.value) == f"index_to_evict: expected one of {legal}, found {illegal}"
    with pytest.raises(UsageError, match="^index_to_evict: expected one of .*, found 0.5$"):
        env.step(0.5)
    env.step(legal[0])  # the decision was still pending


def test_illegal_actions_fall_back(two: Corpus) -> None:
    env = AllocationEnv(RegallocEviction(), two, render_mode="ansi")
    env.reset(seed=0)
    illegal = int(np.flatnonzero(~env.action_masks())[0])
    expected = 32 if env.action_masks()[32] else int(np.flatnonzero(env.action_masks())[0])
    *_, info = env.step(illegal)
    assert info["illegal_actions"] == 1
    assert f"last action: {expected}" in str(env.render())
    *_, info = env.step(int(np.flatnonzero(env.action_masks())[0]))
    assert info["illegal_actions"] == 1
    env.close()


def test_the_decision_limit_truncates(two: Corpus) -> None:
    env = AllocationEnv(RegallocEviction(), two, decision_limit=3)
    env.reset(options={"module": "expr_vm.c", "function": "expr_run"})
    reward, info = finish(env)
    assert reward == -1.0
    assert info["error"] == (
        "module 'expr_vm.c:expr_run': took more than its 3 decisions; decision_limit lifts the "
        "limit"
    )
    assert info["decision"] == 3
    assert info["score"] == 0.0
    with pytest.raises(UsageError, match="^step: expected a pending decision, found none"):
        env.step(0)
    env.reset()
    env.close()


def test_an_abandoned_function_costs_nothing_later(
    env: AllocationEnv, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_compilation, "_ABANDON_TIMEOUT_S", env.compiler.timeout_s)  # however busy
    env.reset(options={"module": "expr_vm.c", "function": "expr_run"})
    worker = env.compiler.worker_pid
    env.step(int(env.action_masks().argmax()))
    env.reset(options={"function": "expr_run"})
    assert env.compiler.worker_pid == worker
    reward, info = finish(env)
    env.reset(options={"function": "expr_run"})
    assert finish(env)[1]["machine_code_sha256"] == info["machine_code_sha256"]
    assert reward != 0


def test_a_crash_truncates_the_episode(env: AllocationEnv) -> None:
    _, info = env.reset(options={"module": "expr_vm.c", "function": "expr_run"})
    worker = env.compiler.worker_pid
    assert worker is not None
    os.kill(worker, signal.SIGKILL)
    *_, truncated, info = env.step(int(env.action_masks().argmax()))
    assert truncated
    assert info["error"] == "module 'expr_vm.c:expr_run': LLVM ended with signal 9 (SIGKILL)"
    env.reset(options={"function": "expr_run"})
    assert finish(env)[1]["score"] > 0


def test_a_deadline_truncates_the_episode(two: Corpus) -> None:
    env = AllocationEnv(RegallocEviction(), two, timeout_s=120)
    env.reset(options={"module": "expr_vm.c", "function": "expr_run"})
    worker = env.compiler.worker_pid
    assert worker is not None
    os.kill(worker, signal.SIGSTOP)
    time_is_up(env.compiler)
    *_, truncated, info = env.step(int(env.action_masks().argmax()))
    assert truncated
    assert info["error"].endswith(
        "LLVM took more than its 120 s after 1 decisions; timeout_s or --timeout lifts the limit"
    )
    env.close()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (SILENT, "module 'm': asks for no decision in any function"),
        (EMPTY, "module 'm': asks for no decision in any function"),
        ("define i32 @f() {\n  ret i33 1\n}\n", "module 'm': LLVM IR parsing error"),
        (
            "define i32 @f(i1 %c) {\n  br i1 %c, label %a, label %b\na:\n  %x = add i32 1, 1\n"
            "  br label %b\nb:\n  ret i32 %x\n}\n",
            "module 'm': Instruction does not dominate all uses!",
        ),
        (
            'target triple = "riscv64-unknown-linux-gnu"\n' + SILENT,
            "module 'm': asks for no decision in any function",
        ),
    ],
)
def test_modules_that_cannot_be_used(env: AllocationEnv, text: str, message: str) -> None:
    with pytest.raises(ModuleError) as caught:
        env.reset(options={"module": Module.from_ir(text, "m")})
    assert str(caught.value).splitlines()[0] == message
    with pytest.raises(UsageError, match="^step: expected a pending decision, found none"):
        env.step(0)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        (
            {"modul": "x"},
            OptionsError,
            "reset options: expected only 'module', 'function', found ['modul']",
        ),
        ({"module": 3}, OptionsError, "reset options: expected a module or its name, found 3"),
        ({"function": 3}, OptionsError, "reset options: expected a function's name, found 3"),
        (
            {"function": "f"},
            OptionsError,
            "reset options: expected a module with the first function",
        ),
        (
            {"module": "expr_vm.c", "function": "f"},
            ModuleError,
            "module 'expr_vm.c': expected one of its 2 functions that ask, found 'f'",
        ),
        ({"module": "x"}, CorpusError, "corpus '{folder}': expected one of its 2 modules, found"),
    ],
)
def test_bad_reset_options(
    env: AllocationEnv, options: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error) as caught:
        env.reset(options=options)
    assert str(caught.value).startswith(message.replace("{folder}", env.corpus.folder))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"illegal_action": "x"}, "illegal_action: expected one of error, fallback, found 'x'"),
        (
            {"reward_on_truncation": math.nan},
            "reward_on_truncation: expected a finite number, found nan",
        ),
        ({"decision_limit": 0}, "decision_limit: expected a whole number above 0, found 0"),
        ({"max_eviction_count": 0}, "max_eviction_count: expected a whole number above 0, found 0"),
        (
            {"opt_level": "O0"},
            "opt_level: expected one of O1, O2, O3, Os, Oz, "
            "Os+attributes, Oz+attributes, found 'O0'",
        ),
        (
            {"render_mode": "human"},
            "render_mode: expected None, 'ansi' or 'rgb_array', found 'human'",
        ),
    ],
)
def test_bad_settings(two: Corpus, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionsError) as caught:
        make_env("regalloc-eviction", two, **settings)
    assert str(caught.value) == message


def test_a_corpus_that_asks_nothing(sample: Corpus) -> None:
    env = AllocationEnv(RegallocEviction(), Corpus(sample.folder, ("frame_stream.c",)))
    with pytest.raises(CorpusError) as caught:
        env.reset(seed=0)
    assert str(caught.value) == (
        f"corpus '{sample.folder}': expected a function that asks for a decision, found none among "
        "1 modules"
    )
    env.close()


def test_unusable_modules_are_skipped_and_named(sample: Corpus, tmp_path: Path) -> None:
    """One module has functions that ask, one has none, one is broken."""
    shutil.copy(sample.folder / "lru_cache.cpp.bc", tmp_path / "good.bc")
    shutil.copy(sample.folder / "frame_stream.c.bc", tmp_path / "silent.bc")
    (tmp_path / "broken.bc").write_bytes(b"BC\xc0\xde")
    manifest = {"modules": ["broken", "good", "silent"], "has_thinlto": False}
    (tmp_path / "corpus_description.json").write_text(json.dumps(manifest))
    env = AllocationEnv(RegallocEviction(), tmp_path)
    skipped: dict[str, str] = {}
    for episode in range(12):
        _, info = env.reset(seed=episode if episode % 3 == 0 else None)
        assert info["module"] == "good"
        skipped |= env.skipped
    assert skipped == {
        "broken": "module 'broken': LLVM bitcode parsing error\nExpected a single module"
    }
    env.close()


def test_a_runner_as_baseline(two: Corpus) -> None:
    def first(inputs: Any, output: Any) -> ScriptedRunner:
        return ScriptedRunner(lambda values: int(values["mask"][0].argmax()), inputs, output)

    env = AllocationEnv(RegallocEviction(), two, baseline=RunnerPolicy(first))
    env.reset(options={"module": "expr_vm.c"})
    reward, info = finish(env)
    assert reward == 0.0
    assert info["score"] == info["baseline_score"]
    env.close()


def test_masked_sampling_in_vector_environments() -> None:
    envs = gymnasium.make_vec(ID, num_envs=2, vectorization_mode="sync")
    _, infos = envs.reset(seed=3)
    envs.action_space.seed(3)
    for _ in range(20):
        masks = tuple(infos["action_mask"])
        _, _, _, truncated, infos = envs.step(envs.action_space.sample(masks))
        assert not truncated.any()
    envs.close()


def test_the_first_legal_position_scores_as_in_the_whole_module(env: AllocationEnv) -> None:
    """A function alone and in its module: equal scores, under the default and under a policy."""
    module = env.corpus["expr_vm.c"]
    functions = run_to_end(env._take_apart(module)).parts.functions
    optimized = env._allocator.optimize(module, functions["expr_run"].options)
    baseline, known = env._allocator.baseline(optimized)
    whole = env._allocator.allocate(known, first_legal)
    for name in functions:
        _, info = env.reset(options={"module": module, "function": name})
        assert info["baseline_score"] == baseline.scores[name].value
        assert finish(env)[1]["score"] == whole.scores[name].value
    assert not math.isclose(whole.score, baseline.score)

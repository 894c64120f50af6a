"""The environment: episodes, rewards, information, failures, and Gymnasium's own checks."""

from __future__ import annotations

import contextlib
import copy
import json
import os
import shutil
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

from mlgo_gym.base._tensor_spec import TensorSpec
from mlgo_gym.corpus._corpus import Corpus, Module
from mlgo_gym.envs._compilation_env import CompilationEnv
from mlgo_gym.envs._making import make_env
from mlgo_gym.errors import CorpusError, ModuleError, OptionsError, UsageError
from mlgo_gym.problems._inlining_for_size import InliningForSize
from mlgo_gym.runners._base import ScriptedRunner
from mlgo_gym.runners._policy import RunnerPolicy
from tests.waiting import time_is_up

ID = "mlgo_gym/InliningForSize-v0"


@pytest.fixture
def env(small: Corpus) -> Iterator[CompilationEnv]:
    env = CompilationEnv(InliningForSize(), small, illegal_action="error", render_mode="ansi")
    yield env
    env.close()


def finish(env: gymnasium.Env[Any, Any], action: int) -> tuple[float, dict[str, Any]]:
    """Answer everything alike; the reward and information of the last step."""
    ended = False
    reward = 0.0
    info: dict[str, Any] = {}
    while not ended:
        assert reward == 0.0
        _, last, terminated, truncated, info = env.step(action)
        reward, ended = float(last), terminated or truncated
    return reward, info


def test_an_episode_is_a_module(env: CompilationEnv) -> None:
    observation, info = env.reset(options={"module": "frame_stream.c"})
    assert tuple(observation) == InliningForSize().layout.feature_names
    assert (info["module"], info["decision"], info["context"]) == ("frame_stream.c", 0, "")
    assert (info["text_size_bytes"], info["object_sha256"], info["error"]) == (0, "", "")
    assert env.skipped == {}
    baseline = info["baseline_text_size_bytes"]
    reward, info = finish(env, 0)
    assert info["decision"] > 1
    assert info["default_advice"] == -1
    assert info["baseline_text_size_bytes"] == baseline
    assert reward == pytest.approx(1 - info["text_size_bytes"] / baseline)
    assert reward < 0
    assert env.settings["size_increase_threshold"] == 2.0


def test_observations_end_in_zeros(env: CompilationEnv) -> None:
    last, _ = env.reset(seed=1)
    terminated = False
    while not terminated:
        last, _, terminated, _, _ = env.step(1)
    assert all(value.tolist() == [0] for value in last.values())


@pytest.mark.e2e
def test_modules_are_drawn_by_the_seed(env: CompilationEnv) -> None:
    def drawn(seed: int) -> list[str]:
        names = [env.reset(seed=seed)[1]["module"]]
        return names + [env.reset()[1]["module"] for _ in range(7)]

    assert drawn(3) == drawn(3)
    assert set(drawn(3)) == set(env.corpus.names)


def test_any_module_may_be_given(env: CompilationEnv, sample: Corpus) -> None:
    _, info = env.reset(options={"module": sample["lz_pack.c"]})
    assert info["module"] == "lz_pack.c"


@pytest.mark.e2e
def test_same_seed_same_episodes_in_two_processes() -> None:
    script = textwrap.dedent("""
        import json, sys
        import gymnasium, mlgo_gym
        env = gymnasium.make("mlgo_gym/InliningForSize-v0")
        env.action_space.seed(11)
        episodes = []
        for episode in range(3):
            observation, info = env.reset(seed=5 if episode == 0 else None)
            trace, ended = [], False
            while not ended:
                trace.append([int(value[0]) for value in observation.values()])
                action = env.action_space.sample()
                observation, reward, terminated, truncated, info = env.step(action)
                ended = terminated or truncated
            episodes.append([info, reward, trace])
        env.close()
        print(json.dumps(episodes, default=lambda number: number.item()))
    """)
    runs = [
        subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
        for _ in range(2)
    ]
    assert runs[0].stdout == runs[1].stdout
    assert len({episode[0]["object_sha256"] for episode in json.loads(runs[0].stdout)}) > 1


def test_a_killed_worker_does_not_condemn_a_module(small: Corpus) -> None:
    env = CompilationEnv(InliningForSize(), Corpus(small.folder, ("frame_stream.c",)))
    env.reset(seed=0)
    for _ in range(3):
        worker = env.compiler.worker_pid
        assert worker is not None
        os.kill(worker, signal.SIGKILL)
        env.reset()
        assert env.skipped == {}
    env.close()


def test_a_module_without_text_to_measure(env: CompilationEnv) -> None:
    hidden = Module.from_ir(
        "define internal i32 @f(i32 %x) { ret i32 %x }\n"
        'define i32 @g(i32 %x) section "boot" {\n  %y = call i32 @f(i32 %x)\n  ret i32 %y\n}\n',
        "hidden",
    )
    with pytest.raises(ModuleError) as caught:
        env.reset(options={"module": hidden})
    assert str(caught.value) == (
        "module 'hidden': has nothing to measure: 0 bytes of code (.text*)"
    )


@pytest.mark.e2e
def test_vector_environments() -> None:
    for mode in ("sync", "async"):
        envs = gymnasium.make_vec(ID, num_envs=2, vectorization_mode=mode)
        observation, info = envs.reset(seed=3)
        assert observation["cost_estimate"].shape == (2, 1)
        for _ in range(5):
            envs.step(envs.action_space.sample())
        assert len(info["module"]) == 2
        envs.close()


def test_copies_have_workers_of_their_own(env: CompilationEnv) -> None:
    twin = copy.deepcopy(env)
    first = env.reset(seed=1)[1]
    second = twin.reset(seed=1)[1]
    assert first == second
    assert twin.compiler.worker_pid != env.compiler.worker_pid
    with pytest.raises(UsageError, match="a running compilation cannot be copied$"):
        copy.deepcopy(env)
    twin.close()


@pytest.mark.parametrize("action", [0.7, "1", None, np.array([1, 0])])
def test_actions_that_are_none(env: CompilationEnv, action: Any) -> None:
    env.reset(seed=0)
    with pytest.raises(UsageError) as caught:
        env.step(action)
    assert str(caught.value) == f"inlining_decision: expected 0 or 1, found {action!r}"
    env.step(np.int64(1))


SILENT = "define i32 @f() {\n  ret i32 1\n}\n"


@pytest.fixture
def mixed(small: Corpus, tmp_path: Path) -> Corpus:
    """One good module; one that asks nothing; one that is broken."""
    shutil.copy(small.folder / "frame_stream.c.bc", tmp_path / "good.bc")
    (tmp_path / "broken.bc").write_bytes(b"BC\xc0\xde")
    data = (small.folder / "frame_stream.c.bc").read_bytes()
    (tmp_path / "cut.bc").write_bytes(data[: len(data) // 2])
    manifest = {"modules": ["broken", "cut", "good"], "has_thinlto": False}
    (tmp_path / "corpus_description.json").write_text(json.dumps(manifest))
    return Corpus.load(tmp_path)


def test_unusable_modules_are_skipped_and_named(mixed: Corpus) -> None:
    env = CompilationEnv(InliningForSize(), mixed)
    skipped: dict[str, str] = {}
    for seed in range(12):
        _, info = env.reset(seed=seed)
        assert info["module"] == "good"
        skipped |= env.skipped
    assert (
        skipped["broken"] == "module 'broken': LLVM bitcode parsing error\nExpected a single module"
    )
    assert set(skipped) == {"broken", "cut"}
    with pytest.raises(ModuleError, match="^module 'broken': LLVM bitcode parsing error"):
        env.reset(options={"module": "broken"})
    env.close()


def test_a_module_that_asks_nothing(env: CompilationEnv) -> None:
    with pytest.raises(ModuleError) as caught:
        env.reset(options={"module": Module.from_ir(SILENT, "silent")})
    assert str(caught.value) == "module 'silent': asks for no decision of InliningForSize"
    with pytest.raises(UsageError, match="^step: expected a pending decision, found none"):
        env.step(0)


def test_a_corpus_that_asks_nothing(mixed: Corpus) -> None:
    env = CompilationEnv(InliningForSize(), Corpus(mixed.folder, ("broken",)))
    with pytest.raises(CorpusError) as caught:
        env.reset(seed=0)
    assert str(caught.value) == (
        f"corpus '{mixed.folder}': expected a module that asks for a decision, found none among "
        "1; the last: module 'broken': LLVM bitcode parsing error\nExpected a single module"
    )
    env.close()


def test_a_crash_truncates_the_episode(env: CompilationEnv) -> None:
    env.reset(options={"module": "frame_stream.c"})
    worker = env.compiler.worker_pid
    assert worker is not None
    os.kill(worker, signal.SIGKILL)
    observation, reward, terminated, truncated, info = env.step(1)
    assert (reward, terminated, truncated) == (-1.0, False, True)
    assert info["error"] == "module 'frame_stream.c': LLVM ended with signal 9 (SIGKILL)"
    assert all(value.tolist() == [0] for value in observation.values())
    with pytest.raises(UsageError, match="^step: expected a pending decision, found none"):
        env.step(1)
    env.reset(options={"module": "frame_stream.c"})
    assert "object_sha256" in finish(env, 1)[1]


def test_a_deadline_truncates_the_episode(small: Corpus) -> None:
    env = CompilationEnv(InliningForSize(), small, timeout_s=120)
    env.reset(options={"module": "frame_stream.c"})
    worker = env.compiler.worker_pid
    assert worker is not None
    os.kill(worker, signal.SIGSTOP)
    time_is_up(env.compiler)
    *_, truncated, info = env.step(1)
    assert truncated
    assert info["error"] == (
        "module 'frame_stream.c': LLVM took more than its 120 s after 1 decisions; "
        "timeout_s or --timeout lifts the limit"
    )
    env.close()


def test_a_number_that_llvm_does_not_take_is_answered_and_counted(small: Corpus) -> None:
    env = CompilationEnv(InliningForSize(), small)
    assert env.reset(options={"module": "frame_stream.c"})[1]["illegal_actions"] == 0
    counts = [env.step(action)[-1]["illegal_actions"] for action in (2, 0, 0.5)]
    assert counts == [1, 1, 2]
    with pytest.raises(UsageError, match="^inlining_decision: expected 0 or 1, found '1'$"):
        env.step("1")
    assert env.reset()[1]["illegal_actions"] == 0
    env.close()


def test_a_baseline_by_its_name(small: Corpus) -> None:
    env = CompilationEnv(InliningForSize(), small, baseline="never")
    _, info = env.reset(options={"module": "frame_stream.c"})
    _, ended = finish(env, 0)
    assert info["baseline_text_size_bytes"] == ended["text_size_bytes"]
    env.close()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"baseline": "nobody"}, "policy: expected one of .*, found 'nobody'"),
        ({"baseline": 3}, "baseline: expected a policy, its name or None, found 3"),
        (
            {"corpus": 3},
            "corpus: expected a corpus, its folder, folders of corpora, corpora by name, or None, "
            "found 3",
        ),
    ],
)
def test_settings_that_are_none(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionsError, match=f"^{message}$"):
        CompilationEnv(InliningForSize(), **settings)


@pytest.mark.parametrize("penalty", [-0.25, 0])
def test_what_truncation_is_worth(small: Corpus, penalty: float) -> None:
    env = CompilationEnv(InliningForSize(), small, decision_limit=1, reward_on_truncation=penalty)
    env.reset(options={"module": "frame_stream.c"})
    _, reward, terminated, truncated, info = env.step(1)
    assert (reward, terminated, truncated) == (penalty, False, True)
    assert "decision_limit lifts the limit" in info["error"]
    env.close()


def test_calls_in_the_wrong_order(env: CompilationEnv) -> None:
    assert env.render() == "no episode\n"
    with pytest.raises(UsageError, match="^step: expected a pending decision, found none; call r"):
        env.step(0)
    env.reset()
    with pytest.raises(UsageError, match="^inlining_decision: expected 0 or 1, found 2$"):
        env.step(2)
    env.step(1)  # the decision was still pending
    env.close()
    for call, name in ((env.reset, "reset"), (lambda: env.step(1), "step")):
        with pytest.raises(UsageError) as error:
            call()
        assert str(error.value) == f"{name}: expected an open environment, found a closed one"


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"modul": "x"}, OptionsError, "reset options: expected only 'module', found ['modul']"),
        ({"module": 3}, OptionsError, "reset options: expected a module or its name, found 3"),
        (
            {"module": "x"},
            CorpusError,
            "corpus '{folder}': expected one of its 3 modules, found 'x'",
        ),
    ],
)
def test_bad_reset_options(
    env: CompilationEnv, options: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error) as caught:
        env.reset(options=options)
    assert str(caught.value) == message.replace("{folder}", env.corpus.folder)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"opt_level": "-Oz"},
            "opt_level: expected one of "
            "O1, O2, O3, Os, Oz, Os+attributes, Oz+attributes, found '-Oz'",
        ),
        (
            {"opt_level": "O0"},
            "opt_level: expected one of O1, O2, O3, Os, Oz, "
            "Os+attributes, Oz+attributes, found 'O0'",
        ),
        (
            {"render_mode": "human"},
            "render_mode: expected None, 'ansi' or 'rgb_array', found 'human'",
        ),
        (
            {"size_increase_threshold": 0},
            "size_increase_threshold: expected a number above 0, found 0",
        ),
        ({"timeout_s": 0}, "timeout_s: expected a number above 0, found 0"),
    ],
)
def test_bad_settings(small: Corpus, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionsError) as caught:
        make_env("inlining-for-size", small, **settings)
    assert str(caught.value) == message


def test_a_runner_as_baseline(small: Corpus) -> None:
    def never(inputs: Sequence[TensorSpec], output: TensorSpec) -> ScriptedRunner:
        return ScriptedRunner(lambda _: 0, inputs, output)

    env = CompilationEnv(InliningForSize(), small, baseline=RunnerPolicy(never))
    env.reset(options={"module": "frame_stream.c"})
    reward, info = finish(env, 0)
    assert reward == 0.0
    assert info["text_size_bytes"] == info["baseline_text_size_bytes"]
    env.close()


def test_a_level_is_compiled_at(small: Corpus) -> None:
    """Not only said: what comes out differs, under the baseline and under a policy."""
    ends = []
    for level in ("O1", "O3"):
        env = CompilationEnv(InliningForSize(), small, opt_level=level)
        env.reset(options={"module": "hash_map.c"})
        ends.append(finish(env, 0)[1])
        assert env.settings["opt_level"] == level
        env.close()
    for key in ("baseline_text_size_bytes", "text_size_bytes", "object_sha256"):
        assert ends[0][key] != ends[1][key]


def test_one_name_of_two_modules(env: CompilationEnv) -> None:
    """Baselines belong to bytes, not to names."""
    baselines = []
    for name in ("frame_stream.c", "hash_map.c", "frame_stream.c"):
        module = replace(env.corpus[name], name="m")
        _, info = env.reset(options={"module": module})
        baselines.append(info["baseline_text_size_bytes"])
    assert baselines[0] == baselines[2] != baselines[1]


def test_what_a_person_sees(env: CompilationEnv) -> None:
    env.reset(options={"module": "json_write.c"})
    env.step(1)
    assert str(env.render()).splitlines()[:3] == [
        "module json_write.c, decision 1",
        "  last action: inline",
        "  LLVM's default: leave",
    ]
    finish(env, 0)
    assert str(env.render()).splitlines()[-1] == "  no decision is pending"


def test_many_episodes_leave_nothing(env: CompilationEnv) -> None:
    """Half of them abandoned midway; the conftest's check looks for what is left."""
    for episode in range(16):
        env.reset(seed=episode)
        env.step(1)
        if episode % 2:
            finish(env, 0)


def test_a_baseline_is_compiled_once(small: Corpus) -> None:
    module = small["frame_stream.c"]
    with contextlib.closing(CompilationEnv(InliningForSize(), small)) as env:
        env.reset(options={"module": module})
        first = env._baseline()
        env.reset(options={"module": Module(module.name, module.data, ("-cc1", "-O1"))})
        other = env._baseline()
        assert first.settings != other.settings
        env.reset(options={"module": small["frame_stream.c"]})
        assert env._baseline() is first

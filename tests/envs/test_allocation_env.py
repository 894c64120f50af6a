"""Register allocation: what is remembered of modules, and what a failed reset leaves."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from mlgo_gym.corpus._corpus import Corpus, Module
from mlgo_gym.envs import _allocation_env
from mlgo_gym.envs._allocation_env import AllocationEnv
from mlgo_gym.errors import CorpusError, MlgoGymError, ModuleError, OptionsError, UsageError
from mlgo_gym.llvm._task import OPTIMIZE
from mlgo_gym.llvm._waiting import run_together
from mlgo_gym.problems import Problem, RegallocPriority
from mlgo_gym.problems._regalloc_eviction import RegallocEviction

SILENT = Module.from_ir("define i32 @f(i32 %x) {\n  ret i32 %x\n}\n", "silent")


@pytest.fixture
def corpus(sample: Corpus) -> Corpus:
    """Two modules: one with two functions that ask, one with one."""
    return Corpus(sample.folder, ("expr_vm.c", "lru_cache.cpp"))


@pytest.fixture
def env(corpus: Corpus) -> Iterator[AllocationEnv]:
    env = AllocationEnv(RegallocEviction(), corpus, render_mode="ansi")
    yield env
    env.close()


def at_level(module: Module, level: str) -> Module:
    """The module under another name, with a command line of another level."""
    assert module.command is not None
    command = tuple(level if word.startswith("-O") else word for word in module.command)
    return replace(module, name=f"{module.name} at {level}", command=command)


def finished(env: AllocationEnv) -> dict[str, Any]:
    """Evict nothing where that is legal, to the end; the last information."""
    while True:
        *_, terminated, truncated, info = env.step(32)
        if terminated or truncated:
            return info


def test_one_bitcode_under_two_command_lines(env: AllocationEnv) -> None:
    """Clang's bitcode before optimisation is often the same at two levels."""
    built = env.corpus["expr_vm.c"]
    ends = []
    for module, level in ((built, "Oz"), (at_level(built, "-O1"), "O1"), (built, "Oz")):
        _, info = env.reset(options={"module": module, "function": "expr_run"})
        assert (info["module"], env.settings["opt_level"]) == (module.name, level)
        ends.append(finished(env))
    for key in ("baseline_score", "score", "machine_code_sha256"):
        assert ends[0][key] == ends[2][key] != ends[1][key]


def test_one_name_of_two_bitcodes(env: AllocationEnv) -> None:
    baselines = [
        env.reset(options={"module": replace(env.corpus[name], name="m")})[1]["baseline_score"]
        for name in ("expr_vm.c", "lru_cache.cpp")
    ]
    assert baselines[0] != baselines[1]


def test_one_bitcode_under_two_names(env: AllocationEnv) -> None:
    """It is optimised once; whatever is said of it has the name that was asked for."""
    module = env.corpus["expr_vm.c"]
    _, first = env.reset(options={"module": module})
    twin = replace(module, name="twin.c")
    _, second = env.reset(options={"module": twin})
    assert (first["module"], second["module"]) == ("expr_vm.c", "twin.c")
    assert first["baseline_score"] == second["baseline_score"]
    assert len(env._known) == 1
    assert "of twin.c, decision 0" in str(env.render())
    env.compiler.interrupt()
    assert env.step(32)[-1]["error"].startswith("module 'twin.c:")


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"module": SILENT}, ModuleError),
        ({"module": "lru_cache.cpp", "function": "f"}, ModuleError),
        ({"function": "f"}, ModuleError),
    ],
)
def test_a_failed_reset_moves_nothing(
    env: AllocationEnv, options: dict[str, Any], error: type[MlgoGymError]
) -> None:
    """The next one goes on as if it had not been asked for; until then there is no episode."""
    _, first = env.reset(options={"module": "expr_vm.c"})
    with pytest.raises(error):
        env.reset(options=options)
    with pytest.raises(UsageError, match="^step: expected a pending decision, found none"):
        env.step(32)
    assert env.render() == "no episode\n"
    _, second = env.reset()
    assert second["module"] == "expr_vm.c"
    assert second["function"] != first["function"]
    assert finished(env)["baseline_score"] == second["baseline_score"]


@pytest.mark.parametrize(
    ("options", "error"), [({"module": "x"}, CorpusError), ({"modul": "x"}, OptionsError)]
)
def test_options_that_cannot_be_leave_the_episode(
    env: AllocationEnv, options: dict[str, Any], error: type[MlgoGymError]
) -> None:
    _, first = env.reset(options={"module": "expr_vm.c"})
    with pytest.raises(error):
        env.reset(options=options)
    assert finished(env)["function"] == first["function"]


def test_a_failed_first_reset_opens_nothing(env: AllocationEnv) -> None:
    with pytest.raises(ModuleError):
        env.reset(options={"module": "expr_vm.c", "function": "f"})
    with pytest.raises(OptionsError, match="expected a module with the first function$"):
        env.reset(options={"function": "expr_run"})
    assert env.reset(seed=1)[1]["decision"] == 0


def test_rows_optimise_at_once(corpus: Corpus) -> None:
    """No row waits for another's module: all are under way before the first is done."""
    envs = [AllocationEnv(RegallocEviction(), corpus) for _ in range(2)]
    work = [env.resetting(options={"module": "expr_vm.c"}) for env in envs]
    waited_for = [next(steps) for steps in work]
    assert [compilation.task for compilation in waited_for] == [OPTIMIZE, OPTIMIZE]
    assert not any(env._known for env in envs)
    infos = [info for _, info in run_together(work)]
    assert infos[0]["baseline_score"] == infos[1]["baseline_score"]
    assert finished(envs[0])["score"] == finished(envs[1])["score"]
    for env in envs:
        env.close()


def test_a_level_is_compiled_at(corpus: Corpus) -> None:
    """Not only said: baselines and episodes differ."""
    ends = []
    for level in ("O1", "O3"):
        env = AllocationEnv(RegallocEviction(), corpus, opt_level=level)
        env.reset(options={"module": "expr_vm.c", "function": "expr_run"})
        ends.append(finished(env))
        assert env.settings["opt_level"] == level
        env.close()
    for key in ("baseline_score", "score", "machine_code_sha256"):
        assert ends[0][key] != ends[1][key]


def test_modules_taken_apart_are_forgotten(
    env: AllocationEnv, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where there is no room for two of them, the last one stays; the other is made again."""
    monkeypatch.setattr(_allocation_env, "_REMEMBERED_BYTES", 1)
    baselines = []
    for name in ("expr_vm.c", "lru_cache.cpp", "expr_vm.c"):
        baselines.append(env.reset(options={"module": name})[1]["baseline_score"])
        assert len(env._known) == 1
    assert baselines[0] == baselines[2] != baselines[1]


def test_no_more_is_forgotten_than_has_to_be(
    env: AllocationEnv, sample: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ("lru_cache.cpp", "expr_vm.c", "hash_map.c")

    def known() -> list[int]:
        env._known.clear()
        for name in names:
            env.reset(options={"module": sample[name]})
        functions = (parts.functions.values() for parts in env._known.values())
        return [sum(len(each.module.data) for each in every) for every in functions]

    sizes = known()
    assert len(sizes) == len(names)
    monkeypatch.setattr(_allocation_env, "_REMEMBERED_BYTES", sum(sizes[1:]))
    assert known() == sizes[1:]


def lowest(env: AllocationEnv) -> Any:
    """The lowest position that is legal, or a low priority."""
    if isinstance(env.problem, RegallocPriority):
        return np.array([1.0], np.float32)
    return int(env.action_masks().nonzero()[0][0])


def played(env: AllocationEnv) -> tuple[float, dict[str, Any]]:
    """The end of an episode under `lowest`."""
    while True:
        _, reward, terminated, _, info = env.step(lowest(env))
        if terminated:
            return float(reward), info


@pytest.mark.parametrize("problem", [RegallocEviction(), RegallocPriority()])
def test_a_function_branches(sample: Corpus, problem: Problem) -> None:
    """Both go on alone, from the same decision, and the branch to another end."""
    env = AllocationEnv(problem, sample.only(["expr_vm.c"]))
    with pytest.raises(UsageError, match="fork: expected a pending decision, found none"):
        env.fork()
    env.reset(options={"module": "expr_vm.c", "function": "expr_run"})
    env.step(lowest(env))
    twin, other = env.fork(), env.fork()
    other.step(other.action_space.sample())
    first, second = played(env), played(twin)
    assert first[0] == second[0]
    assert first[1]["machine_code_sha256"] == second[1]["machine_code_sha256"]
    assert first[1]["decision"] == second[1]["decision"]
    twin.reset(options={"module": "expr_vm.c", "function": "expr_run"})
    assert played(twin)[1]["function"] == "expr_run"
    for each in (env, twin, other):
        each.close()

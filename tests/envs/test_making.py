"""Which environment a problem has, whoever's problem it is."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

from mlgo_gym.corpus._corpus import Corpus
from mlgo_gym.envs._allocation_env import AllocationEnv
from mlgo_gym.envs._compilation_env import CompilationEnv
from mlgo_gym.envs._decision_env import DecisionEnv
from mlgo_gym.envs._making import make_env
from mlgo_gym.errors import CompilationError, OptionsError, UsageError
from mlgo_gym.llvm._waiting import Steps
from mlgo_gym.problems._inlining_for_size import InliningForSize
from mlgo_gym.problems._regalloc_eviction import RegallocEviction
from mlgo_gym.problems._regalloc_priority import RegallocPriority
from tests.envs.test_contract import EvictionForSize

EXAMPLE = Path(__file__).parents[2] / "examples" / "loaded_size"


def test_a_name_with_its_settings(small: Corpus) -> None:
    env = make_env("regalloc-eviction", small, max_eviction_count=7, opt_level="O2")
    assert isinstance(env, AllocationEnv)
    assert env.problem == RegallocEviction(7)
    env.close()


@pytest.mark.e2e
def test_a_problem_is_measured_as_it_says(sample: Corpus) -> None:
    corpus = Corpus(sample.folder, ("expr_vm.c",))
    env = make_env(EvictionForSize(), corpus, decision_limit=40)
    assert isinstance(env, CompilationEnv)
    observation, info = env.reset(seed=1)
    baseline, ended = info["baseline_text_size_bytes"], False
    while not ended:
        assert info["action_mask"].tolist() == observation["mask"][0].tolist()
        observation, reward, ended, truncated, info = env.step(32)
        assert not truncated
    assert reward == pytest.approx(1 - info["text_size_bytes"] / baseline)
    assert reward != 0
    env.close()


COMMON = {"module", "decision", "illegal_actions", "context", "error"}
COUNTS = {f"count_{name}" for name in ("loads", "stores", "loads_and_stores", "copies")}
COUNTS |= {f"count_{kind}_rematerialisations" for kind in ("cheap", "expensive")}
ALLOCATION = {*COMMON, *COUNTS, "function", "score", "baseline_score", "machine_code_sha256"}
SIZES = {"text_size_bytes", "baseline_text_size_bytes"}
KEYS = {
    "InliningForSize": {*COMMON, *SIZES, "default_advice", "object_sha256"},
    "RegallocEviction": {*ALLOCATION, "action_mask"},
    "RegallocPriority": ALLOCATION,
}
"""What the documentation says is in the info."""


@pytest.mark.parametrize("name", KEYS)
@pytest.mark.parametrize("limit", [None, 2])
def test_the_info_has_one_structure(sample: Corpus, name: str, limit: int | None) -> None:
    """From ``reset`` to the end, truncated or not: the same keys, each of one shape and type."""
    corpus = Corpus(sample.folder, ("expr_vm.c",))
    env = gymnasium.make(f"mlgo_gym/{name}-v0", corpus=corpus, decision_limit=limit)
    env.action_space.seed(1)
    options = {"module": "expr_vm.c"}
    if "function" in KEYS[name]:
        options["function"] = "expr_run"
    infos, ended = [env.reset(options=options)[1]], False
    while not ended:
        *_, terminated, truncated, info = env.step(env.action_space.sample())
        infos.append(info)
        ended = terminated or truncated
    assert set(infos[0]) == KEYS[name]
    for info in infos:
        assert list(info) == list(infos[0])
        assert list(map(type, info.values())) == list(map(type, infos[0].values()))
        assert all(isinstance(each, str | np.generic | np.ndarray) for each in info.values())
        assert np.shape(info.get("action_mask", 0)) == np.shape(infos[0].get("action_mask", 0))
    assert [bool(info["error"]) for info in infos[:-1]] == [False] * (len(infos) - 1)
    assert bool(infos[-1]["error"]) == (limit is not None)
    env.close()


def test_a_name_that_there_is_not() -> None:
    with pytest.raises(OptionsError, match="^problem: expected one of .*, found 'eviction'$"):
        make_env("eviction")


def test_a_measure_of_the_other_kind() -> None:
    with pytest.raises(OptionsError) as caught:
        CompilationEnv(RegallocEviction())
    assert (
        str(caught.value) == "RegallocEviction: expected a measure of objects, found AllocationCost"
    )
    with pytest.raises(OptionsError) as caught:
        AllocationEnv(InliningForSize())
    expected = "InliningForSize: expected a measure of register allocation, found TextSize"
    assert str(caught.value) == expected


def test_a_problem_of_another_package(tmp_path: Path) -> None:
    """It is there under its own id as soon as its package is installed."""
    folder = tmp_path / "theirs-1.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: theirs\nVersion: 1.0\n")
    (folder / "entry_points.txt").write_text(
        "[mlgo_gym.problems]\ntheirs = mlgo_gym_loaded_size:InliningForLoadedSize\n"
    )
    script = textwrap.dedent("""
        import sys
        sys.path += sys.argv[1:]
        import gymnasium, mlgo_gym
        env = gymnasium.make("mlgo_gym/InliningForLoadedSize-v0", size_increase_threshold=3.0)
        _, info = env.reset(options={"module": "frame_stream.c"})
        assert env.get_wrapper_attr("settings")["size_increase_threshold"] == 3.0
        baseline, ended = info["baseline_loaded_size_bytes"], False
        while not ended:
            _, reward, ended, _, info = env.step(0)
        assert reward == (baseline - info["loaded_size_bytes"]) / baseline != 0
        env.close()
        envs = gymnasium.make_vec("mlgo_gym/InliningForLoadedSize-v0", num_envs=2)
        print(type(envs.unwrapped).__name__)
        envs.close()
    """)
    run = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path), str(EXAMPLE)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert run.stdout == "CompilationVectorEnv\n"


_IDS = {
    f"mlgo_gym/{each}-v0"
    for each in ("InliningForSize", "RegallocEviction", "RegallocPriority", "TierUp")
}


@pytest.mark.parametrize("order", ["mlgo_gym, gymnasium", "gymnasium, mlgo_gym"])
def test_environments_are_registered_whichever_is_imported_first(order: str) -> None:
    program = f"""
        import sys
        finders = list(sys.meta_path)
        import {order.partition(", ")[0]}
        assert sys.meta_path == finders
        import {order}
        print(*(each for each in gymnasium.registry if each.startswith("mlgo_gym/")))
    """
    command = [sys.executable, "-W", "error", "-c", textwrap.dedent(program)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) == _IDS


def test_a_spawned_child_needs_the_module_prefix(tmp_path: Path) -> None:
    """It has imported Gymnasium alone: the part before the colon is what it is to import."""
    program = tmp_path / "spawns.py"
    program.write_text(
        textwrap.dedent("""
            import multiprocessing, sys
            import gymnasium

            def make(name):
                assert "mlgo_gym" not in sys.modules
                env = gymnasium.make(name)
                print(env.spec.id, type(env.unwrapped).__name__, flush=True)
                env.close()

            if __name__ == "__main__":
                name = "mlgo_gym:mlgo_gym/InliningForSize-v0"
                child = multiprocessing.get_context("spawn").Process(target=make, args=(name,))
                child.start()
                child.join()
                make(name)
        """)
    )
    done = subprocess.run([sys.executable, program], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["mlgo_gym/InliningForSize-v0 CompilationEnv"] * 2


def test_actions_that_cannot_be_counted(sample: Corpus) -> None:
    env = make_env(RegallocPriority(), sample)
    assert isinstance(env, AllocationEnv)
    with pytest.raises(UsageError) as caught:
        env.action_masks()
    assert str(caught.value) == "action_masks: RegallocPriority: actions cannot be counted"
    env.close()


def test_what_kills_a_worker_once_is_tried_again() -> None:
    """Once: where it fails again, that is the error."""
    calls: list[int] = []

    def start() -> Steps[Any]:
        calls.append(len(calls))
        yield from ()
        if len(calls) != 2:
            raise CompilationError("m", f"died {len(calls)}", exit_status=None, stderr_tail=())
        return "compilation"

    with pytest.raises(StopIteration) as done:
        next(DecisionEnv._twice(start))
    assert done.value.value == "compilation"
    with pytest.raises(CompilationError, match="died 4"):
        next(DecisionEnv._twice(start))

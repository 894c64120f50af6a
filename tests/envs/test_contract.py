"""The contract, over the environments of all problems; and environments that break it."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import gymnasium
import numpy as np
import pytest

from mlgo_gym.corpus._corpus import Corpus
from mlgo_gym.envs._compilation_env import CompilationEnv
from mlgo_gym.envs._making import make_env
from mlgo_gym.envs._wrappers import FloatVectorObservation
from mlgo_gym.errors import UsageError
from mlgo_gym.problems._inlining_for_size import InliningForSize
from mlgo_gym.problems._problem import Problem
from mlgo_gym.problems._regalloc_eviction import RegallocEviction
from mlgo_gym.problems._registry import problem_named, problems
from mlgo_gym.rollout._measures import measure_of
from mlgo_gym.testing import ContractError, check_env
from tests.conftest import lacking, one_in

EXAMPLE = Path(__file__).parents[2] / "examples" / "loaded_size"


@dataclass(frozen=True, slots=True)
class EvictionForSize(RegallocEviction):
    """Eviction, measured by the object: masks in whole modules."""

    name: ClassVar[str] = "EvictionForSize"
    measure: ClassVar[str] = "mlgo_gym.rollout:TextSize"


def loaded_size() -> Problem:
    kind = importlib.import_module("mlgo_gym_loaded_size").InliningForLoadedSize
    made: Problem = kind()
    return made


@pytest.mark.parametrize("name", [kind.name for kind in problems().values()])
def test_registered_environments_keep_the_contract(sample: Corpus, name: str) -> None:
    by_function = measure_of(problem_named(name)()).by_function
    names = ["expr_vm.c", "lru_cache.cpp"] if by_function else ["frame_stream.c", "json_write.c"]
    settings: dict[str, Any] = {"corpus": sample.only(names)}
    check_env(partial(gymnasium.make, f"mlgo_gym/{name}-v0", render_mode="ansi", **settings))


def test_a_picture_of_the_state(sample: Corpus) -> None:
    env = gymnasium.make("mlgo_gym/InliningForSize-v0", corpus=sample, render_mode="rgb_array")
    env.reset(options={"module": "digest.c"})
    first = env.render()
    assert isinstance(first, np.ndarray)
    assert first.dtype == np.uint8
    assert first.shape == (480, 800, 3)
    env.step(1)
    after = env.render()
    assert isinstance(after, np.ndarray)
    assert after.shape == first.shape
    assert (after != first).any()
    env.close()


def test_stable_baselines3_makes_several() -> None:
    """It asks for pictures, whatever the environment."""
    env_util = pytest.importorskip("stable_baselines3.common.env_util")
    for name in ("InliningForSize", "TierUp"):
        envs = env_util.make_vec_env(f"mlgo_gym/{name}-v0", 2)
        envs.reset()
        envs.close()


def test_torchrl_takes_every_environment() -> None:
    """In a process of its own, since it changes how PyTorch starts processes."""
    if not importlib.util.find_spec("torchrl"):
        lacking("needs torchrl: pip install 'mlgo-gym[test-rl]'")
    names = [*(kind.name for kind in problems().values()), "TierUp"]
    lines = [
        "import mlgo_gym, torchrl.envs as envs",
        f"for name in {names}:",
        "    env = envs.GymEnv(f'mlgo_gym/{name}-v0')",
        "    envs.check_env_specs(env)",
        "    env.close()",
    ]
    command = [sys.executable, "-W", "ignore", "-c", "\n".join(lines)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("derived", [EvictionForSize, loaded_size])
def test_environments_of_other_problems_keep_it(
    sample: Corpus, derived: Callable[[], Problem], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path, str(EXAMPLE)])
    corpus = sample.only(["frame_stream.c", "lru_cache.cpp"])
    check_env(partial(make_env, derived(), corpus))


@pytest.mark.e2e
def test_an_id_and_wrappers() -> None:
    check_env("mlgo_gym/InliningForSize-v0")
    check_env(lambda: FloatVectorObservation(gymnasium.make("mlgo_gym/InliningForSize-v0")))


class Loud(CompilationEnv):
    """Gymnasium warns of ends that are no booleans."""

    def step(self, action: Any) -> tuple[Any, float, Any, Any, dict[str, Any]]:
        observation, reward, terminated, truncated, info = super().step(action)
        return observation, reward, int(terminated), truncated, info


class Reusing(gymnasium.Wrapper[Any, Any, Any, Any]):
    """One buffer for all observations."""

    def reset(self, **how: Any) -> Any:
        self.buffer, info = self.env.reset(**how)
        return self.buffer, info

    def step(self, action: Any) -> Any:
        observation, *rest = self.env.step(action)
        for name, values in observation.items():
            self.buffer[name][...] = values
        return self.buffer, *rest


class Sharing(Reusing):
    """One array of all observations is the same."""

    def step(self, action: Any) -> Any:
        observation, *rest = self.env.step(action)
        return observation | {"callee_users": self.buffer["callee_users"]}, *rest


class Hasty(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Rewards before the end."""

    def step(self, action: Any) -> Any:
        observation, reward, *rest = self.env.step(action)
        return observation, float(reward) + 1, *rest


class Biased(gymnasium.Wrapper[Any, Any, Any, Any]):
    """A reward for doing what LLVM does."""

    def step(self, action: Any) -> Any:
        observation, reward, terminated, *rest = self.env.step(action)
        return observation, float(reward) + 0.5 * terminated, terminated, *rest


class Endless(gymnasium.Wrapper[Any, Any, Any, Any]):
    """No observation at the end."""

    def step(self, action: Any) -> Any:
        observation, reward, terminated, *rest = self.env.step(action)
        return None if terminated else observation, reward, terminated, *rest


class Counting(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Says how often it was reset."""

    count = 0

    def reset(self, **how: Any) -> Any:
        self.count += 1
        observation, info = self.env.reset(**how)
        return observation, info | {"episode": self.count}


class Deaf(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Takes no option."""

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        del options
        return self.env.reset(seed=seed)


class Lenient(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Takes any module that it has not for one that it has."""

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        with suppress(ValueError):
            return self.env.reset(seed=seed, options=options)
        return self.env.reset(seed=seed)


class Once(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Cannot be closed twice."""

    is_closed = False

    def close(self) -> None:
        if self.is_closed:
            raise RuntimeError("closed already")
        self.is_closed = True
        self.env.close()


class Curt(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Does not say why."""

    def step(self, action: Any) -> Any:
        try:
            return self.env.step(action)
        except UsageError as error:
            raise UsageError("no") from error


def test_what_is_no_environment() -> None:
    with pytest.raises(ContractError, match="^make: expected a gymnasium.Env, found None$"):
        check_env(lambda: None)  # type: ignore[arg-type, return-value]


def test_gymnasium_s_own_checks_are_of_it(small: Corpus) -> None:
    expected = "^Gymnasium's check_env: expected no error and no warning, found UserWarning: .*bool"
    with pytest.raises(ContractError, match=expected):
        check_env(lambda: Loud(InliningForSize(), small))


@pytest.mark.parametrize(
    "case",
    one_in(
        3,
        [
            (Reusing, "observation before step 1, after it: expected {"),
            (Sharing, "memory that observations share at step 1: expected False, found True"),
            (Hasty, "reward of step 1, which is not the last: expected 0.0, found 1.0"),
            (Biased, "reward of LLVM's default answers: expected 0.0, found 0.5"),
            (
                Endless,
                "observation at the end in the observation space: expected True, found False",
            ),
            (
                Counting,
                "info 'episode' of step 0 of the same seed in the same environment: expected 1",
            ),
            (Deaf, "module that was asked for: expected '.*', found '.*'"),
            (Lenient, "an unknown module: expected MlgoGymError, found none"),
            (Once, "close, twice: expected no error, found RuntimeError: closed already"),
            (Curt, "step after close: expected a message with 'closed', found 'no'"),
        ],
    ),
)
def test_the_suite_finds_what_is_broken(
    sample: Corpus, case: tuple[type[gymnasium.Wrapper[Any, Any, Any, Any]], str]
) -> None:
    kind, message = case
    names = ["frame_stream.c", "json_write.c"] if kind is Deaf else ["frame_stream.c"]
    corpus = sample.only(names)
    with pytest.raises(ContractError, match=f"^{message}"):
        check_env(lambda: kind(make_env("inlining-for-size", corpus)))

"""Wrappers: values, spaces, and a fit with Gymnasium's own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from mlgo_gym.corpus._corpus import Corpus
from mlgo_gym.envs._compilation_env import CompilationEnv
from mlgo_gym.envs._wrappers import (
    DefaultAdviceObservation,
    FloatVectorObservation,
    SignedLogObservation,
)
from mlgo_gym.errors import OptionsError
from mlgo_gym.problems._inlining_for_size import InliningForSize


@pytest.fixture
def env(small: Corpus) -> Iterator[CompilationEnv]:
    env = CompilationEnv(InliningForSize(), small)
    yield env
    env.close()


def test_one_vector(env: CompilationEnv) -> None:
    wrapped = FloatVectorObservation(env)
    vector, _ = wrapped.reset(options={"module": "frame_stream.c"})
    observation, _ = env.reset(options={"module": "frame_stream.c"})
    assert vector.dtype == np.float32
    assert vector.tolist() == [float(value[0]) for value in observation.values()]
    assert vector in wrapped.observation_space


def test_signed_log(env: CompilationEnv) -> None:
    wrapped = SignedLogObservation(env)
    logs, _ = wrapped.reset(options={"module": "frame_stream.c"})
    observation, _ = env.reset(options={"module": "frame_stream.c"})
    for name, value in observation.items():
        x = float(value[0])
        assert logs[name][0] == pytest.approx(np.sign(x) * np.log(1 + abs(x)), rel=1e-6)
    assert logs["callsite_cost"][0] < 0
    assert logs in wrapped.observation_space


def test_default_advice_as_an_input(env: CompilationEnv) -> None:
    wrapped = DefaultAdviceObservation(env)
    observation, info = wrapped.reset(options={"module": "frame_stream.c"})
    terminated, seen = False, set()
    while not terminated:
        assert observation["inlining_default"].tolist() == [info["default_advice"]]
        assert observation in wrapped.observation_space
        seen.add(info["default_advice"])
        observation, _, terminated, _, info = wrapped.step(0)
    assert seen == {0, 1}
    assert observation["inlining_default"].tolist() == [0]


@pytest.mark.e2e
@pytest.mark.filterwarnings("ignore:.*is different from the unwrapped version")
def test_all_together_as_rl_code_uses_them(env: CompilationEnv) -> None:
    wrapped: gymnasium.Env[Any, Any] = FloatVectorObservation(
        SignedLogObservation(DefaultAdviceObservation(env))
    )
    assert wrapped.observation_space.shape == (39,)
    check_env(wrapped, skip_render_check=True)
    normalised = gymnasium.wrappers.NormalizeObservation(
        FloatVectorObservation(SignedLogObservation(env))
    )
    normalised.reset(seed=0)
    vector, *_ = normalised.step(0)
    assert np.isfinite(vector).all()


def test_other_spaces() -> None:
    cart = gymnasium.make("CartPole-v1")
    for wrapper in (FloatVectorObservation, SignedLogObservation, DefaultAdviceObservation):
        with pytest.raises(
            OptionsError, match="^observation space: expected a Dict of Box spaces, found Box"
        ):
            wrapper(cart)
    cart.close()

"""The contract of environments: Gymnasium's, and what those of LLVM's problems add to it."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import gymnasium
import numpy as np
from gymnasium.utils import env_checker

from mlgo_gym.base import MlgoGymError, UsageError
from mlgo_gym.testing._contract import ContractError, described, expect, expect_error

_Env = gymnasium.Env[Any, Any]
_UNKNOWN: Final = "a module that no corpus has"
_SEEDS: Final = 4


def check_env(make: str | Callable[[], _Env], *, seed: int = 0) -> None:
    """Check that environments keep Gymnasium's contract, and that of `mlgo_gym.envs`.

    Gymnasium's own ``check_env`` passes without a warning. Observations are in their space, also
    the last one, and are the caller's own. One seed makes one episode: observations, rewards and
    information, in the same environment and in another. Rewards are 0 before the last step, and
    there, too, if LLVM's default advice is in the information and answers everything. ``reset``
    turns to the module of its option, and an unknown one is an error that names it. Closing twice
    is safe; later calls are a `mlgo_gym.errors.UsageError` that says closed.

    Args:
        make: makes an environment, a new one each time, or is the id of one.
        seed: of episodes and actions.

    Raises:
        ContractError: a clause is broken.

    >>> from mlgo_gym import SAMPLE_CORPUS, Corpus
    >>> from mlgo_gym.envs import make_env
    >>> corpus = Corpus.load(SAMPLE_CORPUS).only(["frame_stream.c"])
    >>> check_env(lambda: make_env("inlining-for-size", corpus))
    """
    check = _Check(partial(gymnasium.make, make) if isinstance(make, str) else make, seed)
    check.gymnasium()
    with _opened(check.make) as env:
        first = check.episode(env)
        check.default_answers(env)
        check.modules(env)
        _expect_same("in the same environment", first, check.episode(env))
        check.closing(env)
    with _opened(check.make) as other:
        _expect_same("in another environment", first, check.episode(other))


@dataclass(frozen=True, slots=True)
class _Step:
    """The values that ``reset`` or ``step`` returned, in a form that can be compared."""

    observation: object
    reward: float
    has_ended: tuple[bool, bool]
    info: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class _Check:
    make: Callable[[], _Env]
    seed: int

    def gymnasium(self) -> None:
        """Gymnasium's own checks pass, without a warning."""
        with _opened(self.make) as env, warnings.catch_warnings():
            warnings.simplefilter("error")
            # It advises ranges of actions that networks like; these are LLVM's own.
            warnings.filterwarnings("ignore", message=".*symmetric and normalized")
            bare = env.unwrapped
            try:
                env_checker.check_env(bare, skip_render_check=bare.spec is None)
            except Exception as error:
                raise ContractError(
                    f"Gymnasium's check_env: expected no error and no warning, "
                    f"found {described(error)}"
                ) from error

    def episode(self, env: _Env) -> list[_Step]:
        """Observations are in the space and the caller's own, and only the end has a reward."""
        env.action_space.seed(self.seed)
        observation, info = env.reset(seed=self.seed)
        steps = [_Step(_value(observation), 0.0, (False, False), _values(info))]
        while not any(steps[-1].has_ended):
            number = len(steps)
            _expect_in_space(env, observation, f"before step {number}")
            shown = steps[-1].observation
            action = _legal_action(env, info)
            previous = observation
            observation, reward, terminated, truncated, info = env.step(action)
            expect(f"observation before step {number}, after it", shown, _value(previous))
            shares = _share_memory(previous, observation)
            expect(f"memory that observations share at step {number}", False, shares)
            if not terminated and not truncated:
                expect(f"reward of step {number}, which is not the last", 0.0, reward)
            has_ended = bool(terminated), bool(truncated)
            steps.append(_Step(_value(observation), float(reward), has_ended, _values(info)))
        _expect_in_space(env, observation, "at the end")
        return steps

    def default_answers(self, env: _Env) -> None:
        """LLVM's own answers are worth 0, if they are in the information."""
        _, info = env.reset(seed=self.seed)
        if "default_advice" not in info:
            return
        reward, terminated, truncated = 0.0, False, False
        while not terminated and not truncated:
            if "default_advice" not in info:
                raise ContractError("default_advice: expected in each information, found none")
            _, last, terminated, truncated, info = env.step(info["default_advice"])
            reward = float(last)
        if terminated:
            expect("reward of LLVM's default answers", 0.0, reward)

    def modules(self, env: _Env) -> None:
        """``reset`` takes a module of the corpus by name; another is an error that names it."""
        seeds = range(self.seed, self.seed + _SEEDS)
        name = env.reset(seed=self.seed)[1].get("module")
        if not isinstance(name, str):
            raise ContractError(f"module in the information: expected a name, found {name!r}")
        another = (each for each in seeds if env.reset(seed=each)[1]["module"] != name)
        _, info = env.reset(seed=next(another, self.seed), options={"module": name})
        expect("module that was asked for", name, info.get("module"))
        expect_error(
            "an unknown module",
            MlgoGymError,
            lambda: env.reset(options={"module": _UNKNOWN}),
            _UNKNOWN,
        )

    def closing(self, env: _Env) -> None:
        """Closing twice is safe, and nothing follows."""
        _, info = env.reset(seed=self.seed)
        action = _legal_action(env, info)
        for time in ("once", "twice"):
            try:
                env.close()
            except Exception as error:
                raise ContractError(
                    f"close, {time}: expected no error, found {described(error)}"
                ) from error
        expect_error("step after close", UsageError, lambda: env.step(action), "closed")
        expect_error("reset after close", UsageError, lambda: env.reset(seed=self.seed), "closed")


@contextmanager
def _opened(make: Callable[[], _Env]) -> Iterator[_Env]:
    """An environment, closed at the end; what a broken one says of that hides no other error."""
    env = make()
    if not isinstance(env, gymnasium.Env):
        raise ContractError(f"make: expected a gymnasium.Env, found {env!r}")
    try:
        yield env
    except BaseException:
        with suppress(Exception):
            env.close()
        raise
    env.close()


def _legal_action(env: _Env, info: Mapping[str, Any]) -> Any:
    """An action by chance, of those that LLVM takes."""
    mask = info.get("action_mask")
    return env.action_space.sample() if mask is None else env.action_space.sample(mask)


def _expect_in_space(env: _Env, observation: Any, when: str) -> None:
    is_there = env.observation_space.contains(observation)
    expect(f"observation {when} in the observation space", True, is_there)


def _expect_same(where: str, first: list[_Step], second: list[_Step]) -> None:
    clause = f"of step {{}} of the same seed {where}"
    for number, (one, other) in enumerate(zip(first, second, strict=False)):
        here = clause.format(number)
        expect(f"observation {here}", one.observation, other.observation)
        expect(f"reward {here}", one.reward, other.reward)
        expect(f"end {here}", one.has_ended, other.has_ended)
        for key in sorted({*one.info, *other.info}):
            expect(f"info {key!r} {here}", one.info.get(key), other.info.get(key))
    expect(f"steps of the same seed {where}", len(first), len(second))


def _value(value: Any) -> object:
    """A value that equals another if all in it does: arrays by type, shape and bytes."""
    if isinstance(value, np.ndarray | np.generic):
        return value.dtype.str, value.shape, value.tobytes()
    if isinstance(value, Mapping):
        return _values(value)
    if isinstance(value, list | tuple):
        return [_value(each) for each in value]
    return value


def _values(values: Mapping[str, Any]) -> dict[str, object]:
    return {name: _value(value) for name, value in values.items()}


def _share_memory(one: Any, other: Any) -> bool:
    pairs = itertools.product(_arrays(one), _arrays(other))
    return any(np.shares_memory(first, second) for first, second in pairs)


def _arrays(observation: Any) -> Iterable[np.ndarray[Any, Any]]:
    if isinstance(observation, np.ndarray):
        return [observation]
    members = observation.values() if isinstance(observation, Mapping) else ()
    return itertools.chain.from_iterable(_arrays(each) for each in members)

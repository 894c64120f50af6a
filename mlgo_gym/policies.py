"""Policies to compare with: plain functions from an observation to an action.

Any Python function will do: it gets an `mlgo_gym.training_log.Observation`, a mapping from the
names of LLVM's features to arrays, and returns the action::

    def small_callees(observation):
        return int(observation["callee_basic_block_count"][0] <= 2)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

import numpy as np

from mlgo_gym.corpus import Module
from mlgo_gym.errors import OptionsError
from mlgo_gym.llvm.compilation import Policy
from mlgo_gym.problems.inlining_for_size import DEFAULT_ADVICE
from mlgo_gym.runners.base import RunnerFactory
from mlgo_gym.runners.policy import RunnerPolicy
from mlgo_gym.training_log import Observation

__all__ = [
    "POLICIES",
    "PolicyFactory",
    "always",
    "default",
    "from_runner",
    "make_policy",
    "never",
    "random",
]

PolicyFactory = Callable[[Module], Policy]
"""Makes the policy for one module, so that nothing depends on the order of the modules."""


def default(observation: Observation) -> int:
    """What LLVM's own heuristic would answer."""
    return int(observation[DEFAULT_ADVICE][0])


def always(observation: Observation) -> int:  # noqa: ARG001
    """Inline every call that LLVM asks about."""
    return 1


def never(observation: Observation) -> int:  # noqa: ARG001
    """Inline no call that LLVM asks about."""
    return 0


def random(seed: int, module: Module) -> Policy:
    """Inline every other call or so; the same seed and module give the same answers."""
    generator = np.random.default_rng([seed, *bytes.fromhex(module.sha256)])

    def answer(observation: Observation) -> int:  # noqa: ARG001
        return int(generator.integers(2))

    return answer


def from_runner(factory: RunnerFactory) -> PolicyFactory:
    """Answers of a runner, which is made anew for each compilation."""
    return lambda _module: RunnerPolicy(factory)


POLICIES: Final[Mapping[str, Callable[[int], PolicyFactory]]] = MappingProxyType(
    {
        "default": lambda _seed: lambda _module: default,
        "always": lambda _seed: lambda _module: always,
        "never": lambda _seed: lambda _module: never,
        "random": lambda seed: lambda module: random(seed, module),
    }
)
"""The policies that have a name; each takes a seed."""


def make_policy(name: str, seed: int = 0) -> PolicyFactory:
    """The policy of a name.

    Raises:
        OptionsError: no policy has this name.
    """
    if name not in POLICIES:
        raise OptionsError(f"policy: expected one of {', '.join(POLICIES)}, found {name!r}")
    return POLICIES[name](seed)

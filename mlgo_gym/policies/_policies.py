"""Policies to compare with: plain functions from an observation to an action.

Any Python function will do: it gets an `mlgo_gym.stream.Observation`, a mapping from the
names of LLVM's features to arrays, and returns the action::

    def small_callees(observation):
        return int(observation["callee_basic_block_count"][0] <= 2)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

import numpy as np

from mlgo_gym.corpus._corpus import Module
from mlgo_gym.errors import OptionsError
from mlgo_gym.llvm._compilation import Policy
from mlgo_gym.policies import _allocation as allocation
from mlgo_gym.problems._inlining_for_size import DEFAULT_ADVICE, InliningForSize
from mlgo_gym.problems._problem import Problem
from mlgo_gym.problems._regalloc_eviction import RegallocEviction
from mlgo_gym.problems._regalloc_priority import RegallocPriority
from mlgo_gym.runners._base import RunnerFactory
from mlgo_gym.runners._policy import RunnerPolicy
from mlgo_gym.stream._events import Observation

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


def _same(policy: Policy) -> Callable[[int], PolicyFactory]:
    return lambda _seed: lambda _module: policy


POLICIES: Final[Mapping[str, Callable[[int], PolicyFactory]]] = MappingProxyType(
    {
        "default": _same(default),
        "always": _same(always),
        "never": _same(never),
        "random": lambda seed: lambda module: random(seed, module),
    }
)
"""The policies of the inliner that have a name; each takes a seed."""

EVICTION_POLICIES: Final[Mapping[str, Callable[[int], PolicyFactory]]] = MappingProxyType(
    {
        "random": lambda seed: lambda module: allocation.random_legal(seed, module),
        "first": _same(allocation.first_legal),
        "keep": _same(allocation.keep),
        "lowest-density": _same(allocation.lowest_density),
        "lowest-use": _same(allocation.lowest_reads_and_writes),
    }
)
"""The policies of eviction that have a name; each takes a seed."""

PRIORITY_POLICIES: Final[Mapping[str, Callable[[int], PolicyFactory]]] = MappingProxyType(
    {
        "random": lambda seed: lambda module: allocation.random_priority(seed, module),
        "by-size": _same(allocation.by_size),
    }
)
"""The policies of allocation priority that have a name; each takes a seed."""

POLICIES_OF: Final[Mapping[str, Mapping[str, Callable[[int], PolicyFactory]]]] = MappingProxyType(
    {
        InliningForSize.name: POLICIES,
        RegallocEviction.name: EVICTION_POLICIES,
        RegallocPriority.name: PRIORITY_POLICIES,
    }
)
"""The policies that have a name, by the name of their problem."""


def make_policy(
    name: str, seed: int = 0, problem: type[Problem] = InliningForSize
) -> PolicyFactory:
    """The policy of a name, for a problem.

    Raises:
        OptionsError: no policy of the problem has this name.
    """
    known = POLICIES_OF[problem.name]
    if name not in known:
        raise OptionsError(f"policy: expected one of {', '.join(known)}, found {name!r}")
    return known[name](seed)

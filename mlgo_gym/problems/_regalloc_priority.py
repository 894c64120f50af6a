"""Register allocation, priority: which live range is given a register next?

LLVM's greedy allocator keeps the live ranges that wait in a queue and takes the one of the highest
priority; it asks for the priority of each range that is put there
(``llvm/lib/CodeGen/MLRegAllocPriorityAdvisor.cpp``). Contexts are functions, in the order in which
LLVM generates code for them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Final

import numpy as np

from mlgo_gym.base import TensorSpec, UsageError
from mlgo_gym.problems._layout import Feature, Layout
from mlgo_gym.problems._policy import Action, FunctionPolicy, Policy, RandomPolicy
from mlgo_gym.problems._problem import Problem
from mlgo_gym.stream import Observation

if TYPE_CHECKING:
    from gymnasium import spaces

HIGHEST_PRIORITY: Final = float(2**32 - 2**8)
"""The largest float32 that is below 2**32: LLVM turns the advice into an unsigned 32-bit number."""

_FEATURES: Final = (
    Feature(
        TensorSpec("li_size", "int64_t", (1,)),
        "the live range's size: the sum of its segments, in slots, 4 for each instruction and more "
        "where instructions were removed",
        "slots",
        0,
        2**32 - 1,
    ),
    Feature(
        TensorSpec("stage", "int64_t", (1,)),
        "how far its allocation has come: new 0, assign 1, split 2, split further 3, spill 4, done "
        "after that",
        "stage",
        0,
        6,
    ),
    Feature(
        TensorSpec("weight", "float", (1,)),
        "its spill weight: uses and definitions by block frequency, over its size; infinite where "
        "it may not be spilled",
        "weight",
        0,
        3.4028234663852886e38,
        may_be_infinite=True,
    ),
)


def by_size(observation: Observation) -> float:
    """Long live ranges before short ones."""
    return float(observation["li_size"][0])


@dataclass(frozen=True, slots=True)
class RegallocPriority(Problem):
    """LLVM's allocation priorities, scored by what the allocation costs.

    A decision is one live range that is queued. The advice is its priority, a number from 0 to
    4,294,967,040; live ranges with higher priorities get registers first.

    >>> RegallocPriority().layout.feature_names
    ('li_size', 'stage', 'weight')
    """

    name: ClassVar[str] = "RegallocPriority"
    advice: ClassVar[TensorSpec] = TensorSpec("priority", "float", (1,))
    policies: ClassVar[Mapping[str, Callable[[int], Policy]]] = MappingProxyType(
        {
            "random": lambda seed: RandomPolicy(
                seed, lambda random, _: float(random.integers(1 << 24))
            ),
            "by-size": lambda _: FunctionPolicy(by_size),
        }
    )
    default_policy: ClassVar[str] = "random"
    compared: ClassVar[tuple[str, ...]] = ("random", "by-size")
    allowed: ClassVar[tuple[float, float, str]] = (0, HIGHEST_PRIORITY, "")
    measure: ClassVar[str] = "mlgo_gym.rollout:AllocationCost"

    def documented_layout(self) -> Layout:
        """LLVM's features."""
        return Layout(self.name, self.advice, _FEATURES)

    def advisor_options(self, channel_base: str) -> tuple[str, ...]:
        """LLVM's options that make the priority advisor ask over the channel of this path."""
        return (
            "-regalloc-enable-priority-advisor=release",
            f"-regalloc-priority-interactive-channel-base={channel_base}",
        )

    def default_options(self) -> tuple[str, ...]:
        """LLVM's options that leave the priorities to LLVM's own heuristic."""
        return ("-regalloc-enable-priority-advisor=default",)

    def encode_advice(self, action: Action, observation: Observation) -> bytes:  # noqa: ARG002
        """``priority``: a number from 0 to `HIGHEST_PRIORITY`; LLVM drops what is after the point.

        Raises:
            UsageError: it is none; what C++ makes of it is undefined.
        """
        if not isinstance(action, int | float) or not 0 <= action <= HIGHEST_PRIORITY:
            raise UsageError(
                f"{self.advice.name}: expected 0 to {HIGHEST_PRIORITY:.0f}, found {action!r}"
            )
        return self.advice.encode(float(action))

    def fallback_action(self, observation: Observation) -> float:
        """First come, first served, by size: long live ranges before short ones."""
        return by_size(observation)

    def action_space(self) -> spaces.Space[Any]:
        """One number, 0 to `HIGHEST_PRIORITY`; the highest comes first."""
        from gymnasium import spaces  # noqa: PLC0415 (not all who know problems need it)

        return spaces.Box(0, HIGHEST_PRIORITY, (1,), np.float32)

    def settings(self) -> dict[str, str | float]:
        """The problem's name, for the record."""
        return {"problem": self.name}

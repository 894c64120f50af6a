"""A problem of one's own: LLVM's inliner, measured by all that a program loads.

The size of the code is not all that inlining changes: constants, tables for switches and what it
takes to unwind the stack grow and shrink with it. Here policies are compared by the bytes of every
section that is loaded. Install the package, and the problem is there::

    pip install examples/loaded_size
    mlgo-gym rollout --problem inlining-for-loaded-size --policy small-callees
    mlgo-gym train group --problem inlining-for-loaded-size --output run --budget 2m

    env = gymnasium.make("mlgo_gym/InliningForLoadedSize-v0")

What LLVM sends and what it takes are inherited; the measure and a policy are new.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import ClassVar, Final

from mlgo_gym.errors import InternalError
from mlgo_gym.llvm import CompilationResult
from mlgo_gym.problems import InliningForSize, Policy, as_policy
from mlgo_gym.rollout import Result, TextSize
from mlgo_gym.stream import Observation

_NOT_LOADED: Final = (".comment", ".debug", ".group", ".llvm", ".note", ".rela", ".str", ".sym")
"""The beginnings of the names of sections that stay in the file."""


class LoadedSize(TextSize):
    """The bytes of all sections that are loaded: code, constants, data and unwinding tables.

    Objects are made as for `TextSize`; only what counts of them is another.
    """

    key: str = "loaded_size_bytes"
    title: str = "loaded bytes"
    meaning: str = "bytes of all sections that are loaded"

    def score(self, result: Result) -> float:
        """The sum of the sections' sizes; less is better."""
        if not isinstance(result, CompilationResult):
            raise InternalError(f"loaded size: expected an object's result, found {result!r}")
        return sum(size for name, size in result.sections if not name.startswith(_NOT_LOADED))


def small_callees(observation: Observation) -> int:
    """Inline callees of one block; whatever else they contain, no jump is added."""
    return int(observation["callee_basic_block_count"][0] <= 1)


@dataclass(frozen=True, slots=True)
class InliningForLoadedSize(InliningForSize):
    """LLVM's inlining decisions, scored by all that is loaded."""

    name: ClassVar[str] = "InliningForLoadedSize"
    driver_name: ClassVar[str] = ""
    measure: ClassVar[str] = "mlgo_gym_loaded_size:LoadedSize"
    compared: ClassVar[tuple[str, ...]] = ("always", "never", "small-callees")
    policies: ClassVar[Mapping[str, Callable[[int], Policy]]] = MappingProxyType(
        {**InliningForSize.policies, "small-callees": lambda _seed: as_policy(small_callees)}
    )

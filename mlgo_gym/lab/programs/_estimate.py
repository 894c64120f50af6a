"""The estimate: what is executed by the counts in a module's bitcode, without running anything.

`mlgo_gym.llvm.text._executed` adds up instructions by how often LLVM says that their blocks run.
What other modules and libraries execute is not in it, so it is the module's own part.
"""

from __future__ import annotations

from typing import ClassVar, Final

from mlgo_gym.base import InternalError, ModuleError
from mlgo_gym.llvm import COMPILE_WITH_ESTIMATE, CompilationResult, Task
from mlgo_gym.rollout import KeptObjectUnit, Measure, ObjectUnit, Result, Unit

MOST_TIMES: Final = 1.5
"""Code that executes more, in LLVM's instructions before optimisation, is not LLVM's code."""


class EstimateUnit(ObjectUnit):
    """A module whose results say what is executed."""

    task: ClassVar[Task] = COMPILE_WITH_ESTIMATE


class KeptEstimateUnit(KeptObjectUnit):
    """A unit with estimates whose results hold their objects."""

    task: ClassVar[Task] = COMPILE_WITH_ESTIMATE


class Estimate(Measure):
    """The instructions of a module that are executed, estimated by the counts in its bitcode.

    >>> Estimate().task.estimates
    True
    """

    unit: type[Unit] = EstimateUnit
    unit_in_mix: ClassVar[type[Unit]] = KeptEstimateUnit
    key: str = "estimate"
    title: str = "estimate"
    meaning: str = "instructions executed, estimated by the counts in the bitcode"

    def score(self, result: Result) -> float:
        """The estimate, in instructions.

        Raises:
            ModuleError: the bitcode has no counts, or more is executed than can be.
        """
        if not isinstance(result, CompilationResult):
            raise InternalError(f"{self.key}: expected an object's result, found {result!r}")
        if result.executed_instructions is None:
            raise ModuleError(
                result.module,
                "expected counts of its functions in its bitcode, found none; "
                "'mlgo-gym profile attach' puts them there",
            )
        executed, most = result.executed_instructions, MOST_TIMES * result.executed_before
        if executed > most:
            raise ModuleError(
                result.module,
                f"expected at most {most:,.0f} instructions that are executed, {MOST_TIMES} times "
                f"those before optimisation, found {executed:,.0f} by LLVM's block frequencies, "
                "which are wrong there",
            )
        return executed

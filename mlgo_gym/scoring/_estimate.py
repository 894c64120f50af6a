"""The estimate: what is executed by the counts in a module's bitcode, without running anything.

`mlgo_gym.llvm.text._executed` adds up instructions by how often LLVM says that their blocks run.
What other modules and libraries execute is not in it, so it is the module's own part.
"""

from __future__ import annotations

from typing import ClassVar

from mlgo_gym.errors import InternalError, ModuleError
from mlgo_gym.llvm._result import CompilationResult
from mlgo_gym.llvm._task import COMPILE_WITH_ESTIMATE, Task
from mlgo_gym.scoring._measures import KeptObjectUnit, Measure, ObjectUnit, Result, Unit


class EstimateUnit(ObjectUnit):
    """A module whose results say what is executed."""

    task: ClassVar[Task] = COMPILE_WITH_ESTIMATE


class KeptEstimateUnit(KeptObjectUnit):
    """The same, and the results hold their objects."""

    task: ClassVar[Task] = COMPILE_WITH_ESTIMATE


class Estimate(Measure):
    """The instructions of a module that are executed, estimated by the counts in its bitcode.

    >>> Estimate().task.estimates
    True
    """

    unit: ClassVar[type[Unit]] = EstimateUnit
    key: ClassVar[str] = "estimate"
    title: ClassVar[str] = "estimate"
    meaning: ClassVar[str] = "instructions executed, estimated by the counts in the bitcode"

    def score(self, result: Result) -> float:
        """The estimate, in instructions.

        Raises:
            ModuleError: the bitcode has no counts.
        """
        if not isinstance(result, CompilationResult):
            raise InternalError(f"{self.key}: expected an object's result, found {result!r}")
        if result.executed_instructions is None:
            raise ModuleError(
                result.module,
                "expected counts of its functions in its bitcode, found none; "
                "'mlgo-gym profile attach' puts them there",
            )
        return result.executed_instructions

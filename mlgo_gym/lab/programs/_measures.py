"""Measures of programs that run: what a reward can be beside the size of the code.

A module's object is linked with the others of its programs, compiled plainly, and the programs run.
A module that is in none, or of which none executes a function, cannot be measured so.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Final, Generic, TypeVar

from corpus_tools.workloads import Workload
from mlgo_gym.base import InternalError, ModuleError, Users, WorkloadError
from mlgo_gym.corpus import Corpus, function_sizes
from mlgo_gym.lab.programs._meters import executed_functions, meter_named
from mlgo_gym.lab.programs._program import Programs, corpora_with_workloads, inputs_sha256
from mlgo_gym.llvm import CompilationResult
from mlgo_gym.rollout import KeptObjectUnit, Measure, MeasureSetting, Result, Unit


class Runs(ABC):
    """Programs that several measures run; they go with the last of these."""

    def __init__(self) -> None:
        self._users = Users(0)

    @abstractmethod
    def inputs_sha256(self) -> str:
        """The hash of what the programs are made of and read."""

    @abstractmethod
    def end(self) -> None:
        """Remove what is there for the programs."""

    def share(self) -> None:
        """Add a measure, which must call `close`."""
        self._users.add()

    def close(self) -> None:
        """End the programs, once all measures have done so."""
        if self._users.leave():
            self.end()


class Reach(Runs):
    """The programs that execute each module; several threads may ask.

    Attributes:
        programs: of the corpus's workloads.
    """

    def __init__(self, programs: Programs) -> None:
        super().__init__()
        self.programs: Final = programs
        self._defined: dict[str, frozenset[str]] = {}
        self._executed: dict[str, frozenset[str]] = {}
        self._alone = threading.Lock()

    def workloads_of(self, module: str) -> tuple[Workload, ...]:
        """The workloads whose programs execute a function of a module."""
        workloads = self.programs.workloads
        known = [each for name, each in workloads.items() if module in self.programs.modules(name)]
        if not known:
            found = f"in none of {', '.join(workloads)}"
            raise ModuleError(module, f"expected it in a workload's program, found it {found}")
        reaching = tuple(each for each in known if self.is_reached(module, each))
        if not reaching:
            names = ", ".join(each.name for each in known)
            raise ModuleError(module, f"expected a workload that reaches it, found none of {names}")
        return reaching

    def is_reached(self, module: str, workload: Workload) -> bool:
        """Whether a workload's program executes a function of a module that is in it."""
        if module not in self._defined:
            data = self.programs.object_of(module).read_bytes()
            self._defined[module] = frozenset(function_sizes(data))
        return bool(self._defined[module] & self._functions(workload))

    def inputs_sha256(self) -> str:
        """The hash of what the programs are made of and read."""
        return inputs_sha256(self.programs.corpus)

    def end(self) -> None:
        """Remove the programs."""
        self.programs.close()

    def _functions(self, workload: Workload) -> frozenset[str]:
        with self._alone:
            if workload.name not in self._executed:
                with self.programs.linked(workload) as program:
                    self._executed[workload.name] = executed_functions(workload, program)
            return self._executed[workload.name]


R = TypeVar("R", bound=Runs)


class RunMeasure(Measure, Generic[R]):
    """A measure of programs that run with a module's object in them.

    Args:
        runs: the programs, which this shares with other measures.
    """

    unit: type[Unit] = KeptObjectUnit
    runs_programs: ClassVar[bool] = True

    def __init__(self, runs: R) -> None:
        runs.share()
        self.runs: Final = runs
        self._known: dict[tuple[str, str], float | WorkloadError] = {}

    def context(self) -> dict[str, str]:
        """The hash of what the programs are made of and read."""
        return {"programs_sha256": self.runs.inputs_sha256()}

    def score(self, result: Result) -> float:
        """Return the cost of the programs with this object; an equal one is not run again.

        Raises:
            ModuleError: no program runs code of the module.
            WorkloadError: a program does something else than it must.
        """
        if not isinstance(result, CompilationResult):
            raise InternalError(f"{self.key}: expected an object's result, found {result!r}")
        key = (result.module, result.object_sha256)
        if key not in self._known:
            try:
                self._known[key] = self.cost(result)
            except WorkloadError as error:
                self._known[key] = error
        if isinstance(found := self._known[key], WorkloadError):
            raise WorkloadError(str(found)) from found
        return found

    @abstractmethod
    def cost(self, result: CompilationResult) -> float:
        """Run the programs; errors are those of `score`."""

    def share(self) -> Measure:
        """Add a user; every user must call `close`."""
        self.runs.share()
        return self

    def close(self) -> None:
        """End the programs, once all users have done so."""
        self.runs.close()


class _Metered(RunMeasure[Reach]):
    """The sum of what a meter says of the programs that a module is in and that reach it."""

    meter: ClassVar[str]

    @classmethod
    def prepare(cls, setting: MeasureSetting) -> Measure:
        """Compile the corpus's programs."""
        return cls(setting.once(_reach))

    @classmethod
    def check(cls, corpora: Mapping[str, Corpus]) -> None:
        """See that a package has workloads."""
        corpora_with_workloads(corpora)

    def cost(self, result: CompilationResult) -> float:
        """Run the programs that reach the module."""
        return sum(self._read(each, result) for each in self.runs.workloads_of(result.module))

    def _read(self, workload: Workload, result: CompilationResult) -> float:
        with self.runs.programs.linked(workload, {result.module: result}) as program:
            (reading,) = meter_named(self.meter).read(workload, [program])
        return reading.value


def _reach(setting: MeasureSetting) -> Reach:
    how: dict[str, Any] = {"jobs": setting.jobs, "timeout_s": setting.timeout_s}
    return Reach(Programs(setting.corpus, opt_level=setting.opt_level, **how))


class ExecutedInstructions(_Metered):
    """The instructions that the programs of a module execute."""

    key: str = "instructions"
    title: str = "instructions"
    meaning: str = "instructions executed by the programs it is in (valgrind)"
    meter: ClassVar[str] = "instructions"


class EstimatedCost(_Metered):
    """The cycles that the programs of a module take, estimated (`lab.programs.Cost`)."""

    key: str = "cost"
    title: str = "cost"
    meaning: str = "estimated cycles of the programs it is in (valgrind)"
    meter: ClassVar[str] = "cost"

"""Measures of programs that run, and mixes: what a reward can be beside the size of the code.

A module's object is linked with the others of its programs, compiled plainly, and the programs run.
A module that is in none, or of which none executes a function, cannot be measured so.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Final

from corpus_tools.workloads import Workload
from mlgo_gym.base import InternalError, ModuleError, WorkloadError
from mlgo_gym.corpus import Corpus, function_sizes
from mlgo_gym.lab.programs._finding import corpora_with_workloads, inputs_sha256
from mlgo_gym.lab.programs._meters import executed_functions, meter_named
from mlgo_gym.lab.programs._program import Programs
from mlgo_gym.llvm import CompilationResult
from mlgo_gym.rollout import KeptObjectUnit, Measure, MeasureSetting, Result, Unit

_PART: Final = re.compile(r"\s*(?P<name>[a-z][a-z0-9_-]*)\s*(:\s*(?P<weight>[0-9.]+)\s*)?")


class Reach:
    """The programs that execute each module; several threads may ask.

    Attributes:
        programs: of the corpus's workloads.
    """

    def __init__(self, programs: Programs) -> None:
        self.programs: Final = programs
        self._defined: dict[str, frozenset[str]] = {}
        self._executed: dict[str, frozenset[str]] = {}
        self._alone = threading.Lock()

    def workloads_of(self, module: str) -> tuple[Workload, ...]:
        """The workloads whose programs execute a function of a module.

        Raises:
            ModuleError: there is none.
            WorkloadError: a program cannot be linked, or does something else than it must.
        """
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

    def _functions(self, workload: Workload) -> frozenset[str]:
        with self._alone:
            if workload.name not in self._executed:
                with self.programs.linked(workload) as program:
                    self._executed[workload.name] = executed_functions(workload, program)
            return self._executed[workload.name]


def remembered(
    known: dict[tuple[str, ...], float | WorkloadError],
    key: tuple[str, ...],
    score: Callable[[], float],
) -> float:
    """A score, which is found once; an error is raised again.

    Args:
        known: what was found before, to which this is added.
        key: names the score.
        score: finds it.

    Raises:
        WorkloadError: there is no score.
    """
    if key not in known:
        try:
            known[key] = score()
        except WorkloadError as error:
            known[key] = error
    if isinstance(found := known[key], WorkloadError):
        raise WorkloadError(str(found)) from found
    return found


class _Run(Measure):
    """The sum of what a meter says of the programs that a module is in and that reach it."""

    unit: type[Unit] = KeptObjectUnit
    runs_programs: ClassVar[bool] = True
    meter: ClassVar[str]

    @classmethod
    def prepare(cls, setting: MeasureSetting) -> Measure:
        """Compile the corpus's programs; measures of one reward share them."""
        if Reach not in setting.shared:
            how: dict[str, Any] = {"jobs": setting.jobs, "timeout_s": setting.timeout_s}
            programs = Programs(setting.corpus, opt_level=setting.opt_level, **how)
            setting.shared[Reach] = Reach(programs)
            return cls(setting.shared[Reach])
        reach: Reach = setting.shared[Reach]
        return cls(reach).share()

    @classmethod
    def check(cls, corpora: Mapping[str, Corpus]) -> None:
        """See that a package has workloads."""
        corpora_with_workloads(corpora)

    @classmethod
    def inputs_sha256(cls, corpus: Corpus) -> str | None:
        """The hash of what the package's programs are made of and read."""
        return inputs_sha256(corpus)

    def __init__(self, reach: Reach) -> None:
        self._reach = reach
        self._known: dict[tuple[str, ...], float | WorkloadError] = {}

    def score(self, result: Result) -> float:
        """Return the programs' cost with this object in them; an equal one is not run again.

        Raises:
            ModuleError: no workload reaches the module.
            WorkloadError: a program does something else than it must.
        """
        if not isinstance(result, CompilationResult):
            raise InternalError(f"{self.key}: expected an object's result, found {result!r}")
        return sum(self._read(each, result) for each in self._reach.workloads_of(result.module))

    def _read(self, workload: Workload, result: CompilationResult) -> float:
        key = (workload.name, result.module, result.object_sha256)
        return remembered(self._known, key, lambda: self._run(workload, result))

    def _run(self, workload: Workload, result: CompilationResult) -> float:
        with self._reach.programs.linked(workload, {result.module: result}) as program:
            (reading,) = meter_named(self.meter).read(workload, [program])
        return reading.value

    def share(self) -> Measure:
        """Add a reference; each owner must call `close`."""
        self._reach.programs.share()
        return self

    def close(self) -> None:
        """Remove the programs, once all users have done so."""
        self._reach.programs.close()


class ExecutedInstructions(_Run):
    """The instructions that the programs of a module execute.

    >>> ExecutedInstructions.key
    'instructions'
    """

    key: str = "instructions"
    title: str = "instructions"
    meaning: str = "instructions executed by the programs it is in (valgrind)"
    meter: ClassVar[str] = "instructions"


class EstimatedCost(_Run):
    """The cycles that the programs of a module take, estimated (`lab.programs.Cost`).

    >>> EstimatedCost.key
    'cost'
    """

    key: str = "cost"
    title: str = "cost"
    meaning: str = "estimated cycles of the programs it is in (valgrind)"
    meter: ClassVar[str] = "cost"

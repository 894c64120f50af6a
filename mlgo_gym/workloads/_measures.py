"""Measures of programs that run, and mixes: what a reward can be beside the size of the code.

A module's object is linked with the others of its programs, compiled plainly, and the programs run.
A module that is in none, or of which none executes a function, cannot be measured so.
"""

from __future__ import annotations

import math
import re
import threading
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, ClassVar, Final

from corpus_tools.workloads import Workload
from mlgo_gym.corpus._corpus import Corpus
from mlgo_gym.errors import InternalError, ModuleError, OptionsError, WorkloadError
from mlgo_gym.llvm._compiler import DEFAULT_TIMEOUT_S
from mlgo_gym.llvm._result import CompilationResult
from mlgo_gym.llvm._schedule import Jobs
from mlgo_gym.objects._functions import function_sizes
from mlgo_gym.plugins import load, missing_parts, plugins
from mlgo_gym.problems._inlining_for_size import InliningForSize
from mlgo_gym.problems._policy import PolicyLike
from mlgo_gym.scoring._estimate import Estimate, KeptEstimateUnit
from mlgo_gym.scoring._linked_text import LinkedText
from mlgo_gym.scoring._measures import KeptObjectUnit, Measure, Result, TextSize, Unit
from mlgo_gym.workloads._meters import executed_functions, meter_named
from mlgo_gym.workloads._program import Programs

_PART: Final = re.compile(r"\s*(?P<name>[a-z][a-z0-9_-]*)\s*(:\s*(?P<weight>[0-9.]+)\s*)?")


class Reach:
    """Which programs execute which modules; several threads may ask.

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


class _Run(Measure):
    """The sum of what a meter says of the programs that a module is in and that reach it."""

    unit: ClassVar[type[Unit]] = KeptObjectUnit
    meter: ClassVar[str]

    def __init__(self, reach: Reach) -> None:
        self._reach = reach
        self._known: dict[tuple[str, str, str], float | str] = {}

    def score(self, result: Result) -> float:
        """What the programs take with this object in them; an equal one is not run again.

        Raises:
            ModuleError: no workload reaches the module.
            WorkloadError: a program does something else than it must.
        """
        if not isinstance(result, CompilationResult):
            raise InternalError(f"{self.key}: expected an object's result, found {result!r}")
        return sum(self._read(each, result) for each in self._reach.workloads_of(result.module))

    def _read(self, workload: Workload, result: CompilationResult) -> float:
        key = (workload.name, result.module, result.object_sha256)
        if key not in self._known:
            self._known[key] = self._run(workload, result)
        if isinstance(known := self._known[key], str):
            raise WorkloadError(known)
        return known

    def _run(self, workload: Workload, result: CompilationResult) -> float | str:
        """The reading, or why there is none."""
        try:
            with self._reach.programs.linked(workload, {result.module: result}) as program:
                (reading,) = meter_named(self.meter).read(workload, [program])
        except WorkloadError as error:
            return str(error)
        return reading.value

    def share(self) -> Measure:
        """The same for one user more, who closes it, too."""
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

    key: ClassVar[str] = "instructions"
    title: ClassVar[str] = "instructions"
    meaning: ClassVar[str] = "instructions executed by the programs it is in (valgrind)"
    meter: ClassVar[str] = "instructions"


class EstimatedCost(_Run):
    """The cycles that the programs of a module take, estimated (`workloads.Cost`).

    >>> EstimatedCost.key
    'cost'
    """

    key: ClassVar[str] = "cost"
    title: ClassVar[str] = "cost"
    meaning: ClassVar[str] = "estimated cycles of the programs it is in (valgrind)"
    meter: ClassVar[str] = "cost"


class Mix(Measure):
    """The weighted geometric mean of several measures, so that none counts more for its unit.

    For small changes the reward is the weighted mean of theirs.

    >>> Mix({TextSize(): 0.5}).keeps_objects
    True
    """

    key: ClassVar[str] = "mix"
    title: ClassVar[str] = "mix"
    meaning: ClassVar[str] = "the weighted geometric mean of several measures"
    unit: ClassVar[type[Unit]] = KeptObjectUnit

    def __init__(self, weights: Mapping[Measure, float]) -> None:
        total = sum(weights.values())
        self._weights = {measure: weight / total for measure, weight in weights.items()}

    def context(self) -> dict[str, str]:
        """That of all."""
        return {name: value for each in self._weights for name, value in each.context().items()}

    def score(self, result: Result) -> float:
        """The mean, in no unit; 0 where one is 0."""
        scores = {measure: measure.score(result) for measure in self._weights}
        if not all(scores.values()):
            return 0.0
        return math.exp(sum(self._weights[each] * math.log(scores[each]) for each in scores))

    def scores(self, result: Result) -> dict[str, float]:
        """The mean, and each measure's."""
        parts = (measure.scores(result) for measure in self._weights)
        return {self.key: self.score(result), **{k: v for part in parts for k, v in part.items()}}

    def share(self) -> Measure:
        """The same for one user more, who closes it, too."""
        for measure in self._weights:
            measure.share()
        return self

    def close(self) -> None:
        """Close each measure."""
        for measure in self._weights:
            measure.close()


class EstimatedMix(Mix):
    """A mix with an estimate in it.

    >>> EstimatedMix({Estimate(): 0.5, TextSize(): 0.5}).task.estimates
    True
    """

    unit: ClassVar[type[Unit]] = KeptEstimateUnit


_RUN: Final = MappingProxyType({"instructions": ExecutedInstructions, "cost": EstimatedCost})
_PLAIN: Final[Mapping[str, type[Measure]]] = MappingProxyType(
    {"text": TextSize, "estimate": Estimate}
)
_NAMES: Final = ("text", "linked", *_RUN, "estimate")
GROUP: Final = "mlgo_gym.measures"


def reward_names() -> tuple[str, ...]:
    """Return the measures that a reward can name: our own, then those of other packages."""
    return (*_NAMES, *plugins(GROUP, _NAMES))


def _plugin_measure(name: str) -> Measure:
    kind: type[Measure] = load(plugins(GROUP, _NAMES)[name], _lacks)
    return kind()


def _lacks(kind: Any) -> str | None:
    if not isinstance(kind, type) or not issubclass(kind, Measure):
        return f"expected a subclass of mlgo_gym.scoring.Measure, found {kind!r}"
    problem = missing_parts(kind, ("unit", "key", "title", "meaning"))
    return problem and f"{kind.__name__}: {problem}"


def measure_named(
    text: str,
    corpus: Corpus,
    policy: tuple[InliningForSize, PolicyLike] | None = None,
    *,
    opt_level: str | None = None,
    jobs: Jobs = 1,
    timeout_s: float = DEFAULT_TIMEOUT_S,
) -> Measure:
    """The measure of a reward's name, or a mix such as ``text:0.5,instructions:0.5``.

    Args:
        text: ``text``, ``linked``, ``instructions``, ``cost``, ``estimate``, or several, each with
            a weight. A measure that another package adds by an entry point is called by its name.
        corpus: whose workloads run, and whose objects are linked.
        policy: what LLVM asks and what answers it in the other objects of what is linked; ``None``
            is LLVM's own heuristic. Programs that run have that in any case.
        opt_level: clang's level to compile at; ``None`` takes each module's own.
        jobs: how many modules are compiled at once.
        timeout_s: how long LLVM may take for one module, in seconds.

    Raises:
        OptionsError: it is no such thing.
        EnvironmentSetupError: another package's measure cannot be used.
        WorkloadError: the corpus has no workload, or one cannot be used.

    >>> from mlgo_gym import SAMPLE_CORPUS
    >>> measure_named("text", Corpus.load(SAMPLE_CORPUS)).key
    'text_size_bytes'
    """
    weights = _weights(text)
    made: dict[Measure, float] = {}
    if run := [name for name in weights if name in _RUN]:
        programs = Programs(corpus, opt_level=opt_level, jobs=jobs, timeout_s=timeout_s)
        reach = Reach(programs)
        made |= {_RUN[name](reach): weights[name] for name in run}
    made |= {_PLAIN[name](): weights[name] for name in weights if name in _PLAIN}
    made |= {_plugin_measure(name): weights[name] for name in weights if name not in _NAMES}
    if "linked" in weights:
        how: dict[str, Any] = {"opt_level": opt_level, "jobs": jobs, "timeout_s": timeout_s}
        made[LinkedText.of(corpus, policy, **how)] = weights["linked"]
    if len(made) == 1:
        return next(iter(made))
    return EstimatedMix(made) if "estimate" in weights else Mix(made)


def runs_programs(text: str) -> bool:
    """Whether programs run for a reward.

    Raises:
        OptionsError: it is no reward.

    >>> runs_programs("text:0.5,cost:0.5"), runs_programs("estimate")
    (True, False)
    """
    return any(name in _RUN for name in _weights(text))


def reward_name(text: str) -> str:
    """A reward's name as all spellings of it have it.

    Raises:
        OptionsError: it is no reward.

    >>> reward_name("instructions:0.50, text"), reward_name("cost:2")
    ('text:1.0,instructions:0.5', 'cost')
    """
    weights = _weights(text)
    parts = [f"{name}:{weights[name]}" for name in reward_names() if name in weights]
    return ",".join(parts) if len(parts) > 1 else next(iter(weights))


def _weights(text: str) -> dict[str, float]:
    weights: dict[str, float] = {}
    names = reward_names()
    for part in text.split(","):
        found = _PART.fullmatch(part)
        try:
            weight = float((found and found["weight"]) or 1)
        except ValueError:
            weight = 0.0
        if not found or found["name"] not in names or found["name"] in weights or not weight > 0:
            raise OptionsError(
                f"reward: expected measures out of {', '.join(names)}, each once, several with a "
                f"weight above 0 as in 'text:0.5,instructions:0.5', found {text!r}"
            )
        weights[found["name"]] = weight
    return weights

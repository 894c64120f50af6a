"""Measures: what compilations are compared by, and the units that are compiled for them.

A measure makes a unit of a module, which is compiled again and again: as LLVM's own heuristics
would have it, and under policies, through one pipeline in one worker. The inliner is measured by
the size of the code, register allocation by LLVM's own score of the machine code. A problem names
its measure (`mlgo_gym.problems.Problem.measure`).
"""

from __future__ import annotations

import math
import pkgutil
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Protocol, TypeVar

from mlgo_gym.base import EnvironmentSetupError, InternalError, OptionsError
from mlgo_gym.corpus import Corpus, Module
from mlgo_gym.llvm import (
    COMPILE,
    DEFAULT_TIMEOUT_S,
    CompilationResult,
    CompileOptions,
    Compiler,
    Jobs,
    Task,
)
from mlgo_gym.problems import PolicyLike, Problem, as_policy
from mlgo_gym.rollout._allocation import AllocationResult, Allocator

Made = TypeVar("Made")


def reward_of(score: float, baseline: float) -> float:
    """Return the share of the baseline that was saved: ``1 - score / baseline``; more is better.

    Where the baseline is 0 it is ``-log(1 + score)``: 0 if the score is 0 too, and below that the
    more it costs.

    >>> reward_of(90, 100), reward_of(150, 100), reward_of(0, 0), round(reward_of(8, 0), 2)
    (0.1, -0.5, 0.0, -2.2)
    """
    if baseline == 0:
        return -math.log1p(score) if score else 0.0
    return (baseline - score) / baseline


class Result(Protocol):
    """The result of a compilation, as far as comparisons look at it.

    >>> from mlgo_gym import Compiler, Module
    >>> module = Module.from_ir("define i32 @f(i32 %x) { ret i32 %x }")
    >>> with Compiler() as compiler:
    ...     compiler.compile_module(module).score > 0
    True
    """

    @property
    def module_sha256(self) -> str:
        """The hash of the module's bytes."""

    @property
    def settings(self) -> Mapping[str, Any]:
        """The settings that decided the code."""

    @property
    def llvm_version(self) -> str:
        """The LLVM that compiled."""

    @property
    def decisions(self) -> int:
        """How many observations were answered."""

    @property
    def score(self) -> float:
        """The number that policies are compared by; less is better."""

    @property
    def digest(self) -> str:
        """The hash of what came out: two results with one are the same."""

    def record(self) -> dict[str, Any]:
        """The result as JSON values."""


@dataclass(eq=False)
class Unit(ABC):
    """One module, compiled again and again for a problem under one measure.

    Attributes:
        compiler: what compiles.
        module: what is compiled.
        options: its own, given to `options_for`.
        problem: what LLVM asks.
        also: further problems, with what answers them.
        sites: decisions say where they are; `check_sites` came before.

    >>> from mlgo_gym import SAMPLE_CORPUS, Compiler, Corpus, InliningForSize
    >>> from mlgo_gym.llvm import options_of
    >>> from mlgo_gym.rollout import TextSize
    >>> module = Corpus.load(SAMPLE_CORPUS)["digest.c"]
    >>> with Compiler() as compiler:
    ...     unit = TextSize().unit(compiler, module, options_of(module), InliningForSize())
    ...     TextSize().rewards(unit.attempt(lambda observation: 0), unit.baseline())[""] <= 0
    True
    """

    keeps_objects: ClassVar[bool] = False
    task: ClassVar[Task] = COMPILE

    compiler: Compiler
    module: Module
    options: CompileOptions
    problem: Problem
    also: Mapping[Problem, PolicyLike] = field(default_factory=dict)
    sites: bool = field(default=False, kw_only=True)

    @classmethod
    def options_for(cls, options: CompileOptions) -> CompileOptions:
        """Return the options that the module is compiled with, given its own."""
        return options

    @abstractmethod
    def baseline(self) -> Result:
        """Compile with LLVM's own heuristics."""

    @abstractmethod
    def attempt(self, policy: PolicyLike) -> Result:
        """Compile with a policy; `baseline` came before, and may raise the same."""


class ObjectUnit(Unit):
    """A module that is compiled to objects."""

    def baseline(self) -> CompilationResult:
        """Compile with LLVM's own heuristics."""
        return self._compile()

    def attempt(self, policy: PolicyLike) -> CompilationResult:
        """Compile with a policy."""
        return self._compile(problem=self.problem, policy=policy, also=self.also)

    def _compile(self, **how: Any) -> CompilationResult:
        return self.compiler.compile_module(
            self.module,
            self.options_for(self.options),
            keep_object=self.keeps_objects,
            task=replace(self.task, sites=self.sites),
            **how,
        )


class KeptObjectUnit(ObjectUnit):
    """A module whose results hold their objects."""

    keeps_objects: ClassVar[bool] = True


@dataclass(frozen=True)
class MeasureSetting:
    """The inputs that a measure is prepared with.

    Attributes:
        corpus: the package that modules come from.
        policy: what answers LLVM in the package's other objects, and about what; ``None`` is LLVM's
            own heuristic.
        opt_level: clang's level to compile at; ``None`` takes each module's own.
        jobs: how many modules are compiled at once.
        timeout_s: how long LLVM may take for one module, in seconds.
        exports: patterns of the symbols that the linked package exports (`linked_sizes`).

    >>> from mlgo_gym import SAMPLE_CORPUS, Corpus
    >>> MeasureSetting(Corpus.load(SAMPLE_CORPUS)).opt_level is None
    True
    """

    corpus: Corpus
    policy: tuple[Problem, PolicyLike] | None = None
    opt_level: str | None = None
    jobs: Jobs = 1
    timeout_s: float = DEFAULT_TIMEOUT_S
    exports: tuple[str, ...] = ("*",)
    _made: dict[Any, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    def once(self, make: Callable[[MeasureSetting], Made]) -> Made:
        """Call a function with the setting, once for all measures of a reward.

        >>> from mlgo_gym import SAMPLE_CORPUS, Corpus
        >>> setting = MeasureSetting(Corpus.load(SAMPLE_CORPUS))
        >>> setting.once(lambda setting: len(setting.corpus))
        22
        """
        if make not in self._made:
            self._made[make] = make(self)
        made: Made = self._made[make]
        return made


class Measure(ABC):
    """A score of compilations, by which they are compared.

    Attributes:
        unit: makes what is compiled again and again.
        key: what a score is called in records.
        title: what it is called where there is little room.
        meaning: what it says.
        makes_objects: results are those of objects (`mlgo_gym.llvm.CompilationResult`).
        by_function: functions are scored by themselves, under LLVM's contexts; otherwise modules.
        unit_in_mix: makes what is compiled where it is one of several measures.
        runs_programs: programs run for it, on this machine.

    >>> from mlgo_gym.problems import RegallocEviction
    >>> from mlgo_gym.rollout import measure_of
    >>> measure_of(RegallocEviction()).title
    'score'
    """

    unit: type[Unit]
    key: str
    title: str
    meaning: str
    makes_objects: ClassVar[bool] = True
    by_function: ClassVar[bool] = False
    unit_in_mix: ClassVar[type[Unit]] = KeptObjectUnit
    runs_programs: ClassVar[bool] = False

    @classmethod
    def prepare(cls, setting: MeasureSetting) -> Measure:
        """Make the measure for a package; whoever asked for it closes it."""
        del setting
        return cls()

    @classmethod  # noqa: B027 (most can measure any package)
    def check(cls, corpora: Mapping[str, Corpus]) -> None:
        """Raise an error where no package can be measured by it."""

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and vars(other) == vars(self)

    def __hash__(self) -> int:
        return hash(type(self))

    @property
    def keeps_objects(self) -> bool:
        """Whether it looks into the objects, which results must hold."""
        return self.unit.keeps_objects

    @property
    def task(self) -> Task:
        """The task of a compilation whose result it looks at, where that is an object's."""
        return self.unit.task

    def options_for(self, options: CompileOptions) -> CompileOptions:
        """Return the options of a compilation whose result it looks at, given the module's own."""
        return self.unit.options_for(options)

    def context(self) -> dict[str, str]:
        """Return the facts that must be equal for scores to be compared, as JSON values."""
        return {}

    def score(self, result: Result) -> float:
        """Return the number that compilations are compared by; less is better."""
        return result.score

    def scores(self, result: Result) -> dict[str, float]:
        """The score by its name in records, and what it is made of, if it is of several."""
        return {self.key: self.score(result)}

    def parts(self, result: Result) -> dict[str, float]:
        """The scores that means are taken of: of each context, or of the whole as ``""``."""
        return {"": self.score(result)}

    def rewards(self, result: Result, baseline: Result) -> dict[str, float]:
        """The reward (`reward_of`) of each context, and of the whole as ``""``."""
        return {"": reward_of(self.score(result), self.score(baseline))}

    def share(self) -> Measure:
        """Add a user; every user must call `close`."""
        return self

    def close(self) -> None:  # noqa: B027 (most hold nothing)
        """Give back what it holds, if it holds anything."""


class TextSize(Measure):
    """The bytes of the object's code: its ``.text*`` sections.

    >>> TextSize.key
    'text_size_bytes'
    """

    unit: type[Unit] = ObjectUnit
    key: str = "text_size_bytes"
    title: str = "bytes"
    meaning: str = "bytes of code (.text*)"


class KeptText(TextSize):
    """The same of objects that are kept, whatever the problem is scored by."""

    unit: type[Unit] = KeptObjectUnit


@dataclass(eq=False)
class _AllocationUnit(Unit):
    def __post_init__(self) -> None:
        check_alone(AllocationCost(), self.problem, self.also)
        check_sites(self.problem, wanted=self.sites)
        self._allocator = Allocator(self.compiler, self.problem)
        self._optimized = self._allocator.optimize(self.module, self.options)

    def baseline(self) -> AllocationResult:
        result, self._optimized = self._allocator.baseline(self._optimized)
        return result

    def attempt(self, policy: PolicyLike) -> AllocationResult:
        known = as_policy(policy).for_module(self.module)  # by its hash: that of the other differs
        return self._allocator.allocate(self._optimized, known)


class AllocationCost(Measure):
    """LLVM's score of register allocation; a module is optimised once.

    >>> AllocationCost.by_function
    True
    """

    unit: type[Unit] = _AllocationUnit
    key: str = "score"
    title: str = "score"
    meaning: str = (
        "LLVM's score of register allocation (loads, stores, copies and what is computed again, by "
        "block frequency)"
    )
    makes_objects: ClassVar[bool] = False
    by_function: ClassVar[bool] = True

    def parts(self, result: Result) -> dict[str, float]:
        """The score of each function; of those that a policy was asked in, if one was."""
        scores = _allocation(result).scores
        names = _allocation(result).asked or scores
        return {name: scores[name].value for name in scores if name in names}

    def rewards(self, result: Result, baseline: Result) -> dict[str, float]:
        """The reward of each function, and of the module as ``""``."""
        costs = _allocation(baseline).scores
        return super().rewards(result, baseline) | {
            name: reward_of(score.value, costs[name].value)
            for name, score in _allocation(result).scores.items()
        }


def measure_of(problem: Problem) -> Measure:
    """Return the measure that a problem's compilations are compared by.

    Raises:
        EnvironmentSetupError: the problem names none that there is, or one that needs a corpus.

    >>> from mlgo_gym.problems import InliningForSize
    >>> measure_of(InliningForSize()).key
    'text_size_bytes'
    """
    try:
        found = pkgutil.resolve_name(problem.measure)
    except (ValueError, ImportError, AttributeError) as error:
        raise EnvironmentSetupError(
            f"{problem.name}: measure {problem.measure!r}: {error}"
        ) from error
    if not isinstance(found, type) or not issubclass(found, Measure):
        raise EnvironmentSetupError(
            f"{problem.name}: measure {problem.measure!r}: expected a subclass of "
            f"mlgo_gym.rollout.Measure, found {found!r}"
        )
    try:
        return found()
    except TypeError as error:
        raise EnvironmentSetupError(
            f"{problem.name}: measure {problem.measure!r}: expected one that needs no corpus, "
            f"found: {error}; pass it as a reward"
        ) from error


def check_alone(measure: Measure, problem: Problem, also: Iterable[Problem]) -> None:
    """See that others are other problems, and that none changes what the allocator is given."""
    if any(each.name == problem.name for each in also):
        raise OptionsError(f"{problem.name}: expected other problems beside it, found itself")
    others = ", ".join(each.name for each in also)
    if others and not measure.makes_objects:
        raise OptionsError(
            f"{problem.name}: expected no other problem beside it, found {others}; "
            "compare by code size instead, with it beside InliningForSize"
        )


def check_sites(problem: Problem, *, wanted: bool) -> None:
    """See that decisions are about calls, if it is to be told where they are."""
    if wanted and not problem.has_sites:
        raise OptionsError(f"sites: expected the inliner's decisions, found {problem.name}")


def _allocation(result: Result) -> AllocationResult:
    if not isinstance(result, AllocationResult):
        raise InternalError(f"measure: expected an allocation, found {result!r}")
    return result

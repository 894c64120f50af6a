"""Measures: how a module is compiled for a problem, and what its policies are compared by.

The inliner is measured by the size of the code that comes out; register allocation by LLVM's own
score of the machine code.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any, ClassVar, Final, Protocol

from mlgo_gym.corpus._corpus import Module
from mlgo_gym.errors import InternalError, OptionsError
from mlgo_gym.llvm._compilation import Policy
from mlgo_gym.llvm._compiler import Compiler
from mlgo_gym.llvm._result import CompilationResult
from mlgo_gym.llvm.command._options import CompileOptions
from mlgo_gym.problems._inlining_for_size import InliningForSize
from mlgo_gym.problems._problem import Problem
from mlgo_gym.runners._policy import RunnerPolicy
from mlgo_gym.scoring._allocation import AllocationResult, Allocator, relative_cost_reduction
from mlgo_gym.scoring._baseline import relative_reduction


class Result(Protocol):
    """What came out of a compilation, as far as comparisons look at it."""

    @property
    def module_sha256(self) -> str:
        """The hash of the module's bytes."""

    @property
    def settings(self) -> Mapping[str, Any]:
        """What decided the code besides."""

    @property
    def llvm_version(self) -> str:
        """The LLVM that compiled."""

    @property
    def decisions(self) -> int:
        """How many observations were answered."""

    @property
    def score(self) -> float:
        """What policies are compared by; less is better."""

    @property
    def digest(self) -> str:
        """The hash of what came out: two results with one are the same."""

    def record(self) -> dict[str, Any]:
        """The result as JSON values."""


class Measure(ABC):
    """One module, compiled again and again for a problem.

    Attributes:
        key: what a score is called in records.
        title: what it is called where there is little room.
        meaning: what it says.

    Raises:
        ModuleError: LLVM refused the module.
        CompilationError: LLVM crashed or outran its deadline.
    """

    key: ClassVar[str]
    title: ClassVar[str]
    meaning: ClassVar[str]

    @abstractmethod
    def baseline(self) -> Result:
        """Compile with LLVM's own heuristics."""

    @abstractmethod
    def attempt(self, policy: Policy) -> Result:
        """Compile with a policy; `baseline` came before."""

    @staticmethod
    @abstractmethod
    def rewards(result: Result, baseline: Result) -> dict[str, float]:
        """The relative improvement of each context, and of the whole as ``""``."""

    @staticmethod
    @abstractmethod
    def parts(result: Result) -> dict[str, float]:
        """The scores that means are taken of: of each context, or of the whole as ``""``."""


class TextSize(Measure):
    """The bytes of the object's code, for the inliner.

    Args:
        compiler: what compiles.
        module: what is compiled.
        options: how.
        problem: what LLVM asks for.
        also: further problems of the same compilation, with what answers them.
    """

    key: ClassVar[str] = "text_size_bytes"
    title: ClassVar[str] = "bytes"
    meaning: ClassVar[str] = "bytes of code (.text*)"

    def __init__(
        self,
        compiler: Compiler,
        module: Module,
        options: CompileOptions,
        problem: Problem,
        also: Mapping[Problem, Policy],
    ) -> None:
        self._compiler = compiler
        self._module = module
        self._options = options
        self._problem = problem
        self._also = also

    def baseline(self) -> CompilationResult:
        """Compile with LLVM's own heuristics."""
        return self._compiler.compile_module(self._module, self._options)

    def attempt(self, policy: Policy) -> CompilationResult:
        """Compile with a policy."""
        return self._compiler.compile_module(
            self._module, self._options, problem=self._problem, policy=policy, also=self._also
        )

    @staticmethod
    def rewards(result: Result, baseline: Result) -> dict[str, float]:
        """The share of the code that was saved."""
        return {"": relative_reduction(int(result.score), int(baseline.score))}

    @staticmethod
    def parts(result: Result) -> dict[str, float]:
        """The size of the code."""
        return {"": result.score}


class AllocationCost(Measure):
    """LLVM's score of register allocation; the module is optimised once.

    Args:
        compiler: what compiles.
        module: what is compiled.
        options: how.
        problem: what LLVM asks for.
    """

    key: ClassVar[str] = "score"
    title: ClassVar[str] = "score"
    meaning: ClassVar[str] = (
        "LLVM's score of register allocation (loads, stores, copies and what is computed again, by "
        "block frequency)"
    )

    def __init__(
        self, compiler: Compiler, module: Module, options: CompileOptions, problem: Problem
    ) -> None:
        self._allocator = Allocator(compiler, problem)
        self._optimized = self._allocator.optimize(module, options)

    def baseline(self) -> AllocationResult:
        """Allocate with LLVM's own heuristics."""
        result, self._optimized = self._allocator.baseline(self._optimized)
        return result

    def attempt(self, policy: Policy) -> AllocationResult:
        """Allocate with a policy."""
        return self._allocator.allocate(self._optimized, policy)

    @staticmethod
    def rewards(result: Result, baseline: Result) -> dict[str, float]:
        """The share of each function's score that was saved, and of the module's as ``""``."""
        rewards = {"": relative_cost_reduction(result.score, baseline.score)}
        costs = _allocation(baseline).scores
        for name, score in _allocation(result).scores.items():
            rewards[name] = relative_cost_reduction(score.value, costs[name].value)
        return rewards

    @staticmethod
    def parts(result: Result) -> dict[str, float]:
        """The score of each function; of those that a policy was asked in, if one was."""
        scores = _allocation(result).scores
        names = _allocation(result).asked or scores
        return {name: scores[name].value for name in scores if name in names}


def _allocation(result: Result) -> AllocationResult:
    if not isinstance(result, AllocationResult):
        raise InternalError(f"measure: expected an allocation, found {result!r}")
    return result


_ALLOCATION: Final = frozenset({"RegallocEviction", "RegallocPriority"})


def measure_class(problem: Problem, also: Iterable[Problem] = ()) -> type[Measure]:
    """What a problem's policies are compared by.

    Args:
        problem: the problem.
        also: others of the same compilations.

    Raises:
        OptionsError: the others change what register allocation is given.
    """
    if problem.name not in _ALLOCATION:
        return TextSize
    if others := ", ".join(each.name for each in also):
        raise OptionsError(
            f"{problem.name}: expected no other problem beside it, found {others}; "
            f"compare by code size instead, with it beside {InliningForSize.name}"
        )
    return AllocationCost


def measure_of(
    problem: Problem,
    compiler: Compiler,
    module: Module,
    options: CompileOptions,
    also: Mapping[Problem, Policy],
) -> Measure:
    """The measure of a problem for one module.

    Raises:
        OptionsError: other problems change what register allocation is given.
        ModuleError: LLVM refused the module.
        CompilationError: LLVM crashed or outran its deadline.
    """
    if measure_class(problem, also) is TextSize:
        return TextSize(compiler, module, options, problem, also)
    return AllocationCost(compiler, module, options, problem)


def opened(policy: Policy) -> AbstractContextManager[Policy]:
    """A policy that is closed at the end, if it is one that can be."""
    return policy if isinstance(policy, RunnerPolicy) else nullcontext(policy)

"""Register allocation by itself: modules optimised once, their functions alone, their scores.

Code generation stops when registers are allocated; what LLVM then has is scored as its own
training would (`llvm.text._allocation_score`). A function is allocated by itself just as in its
module, so a module is optimised once, its functions are taken apart, and an allocation costs no
more than that function's code generation. Block frequencies do not depend on the allocation: LLVM
prints them once, when the baseline is made.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Final

from mlgo_gym.base import ModuleError
from mlgo_gym.corpus import Module
from mlgo_gym.llvm import (
    ALLOCATE,
    ALLOCATE_WITH_FREQUENCIES,
    OPTIMIZE,
    AllocationScore,
    CompileOptions,
    Compiler,
    Frequencies,
    Product,
    Steps,
    Task,
    block_frequencies,
    complete_frequencies,
    extract,
    machine_functions,
    run_to_end,
    score_function,
)
from mlgo_gym.problems import Action, PolicyLike, Problem, WatchedPolicy, as_policy
from mlgo_gym.stream import Observation


@dataclass(frozen=True, slots=True)
class GeometricMean:
    """A geometric mean of ratios, below 1 is better, or 1 of none; those with a 0 are left out."""

    ratio: float
    count: int
    left_out: int


def geometric_mean_ratio(
    scores: Mapping[Any, float], baselines: Mapping[Any, float]
) -> GeometricMean:
    """The geometric mean of ``score / baseline`` over all that is scored.

    >>> geometric_mean_ratio({"f": 2, "g": 8, "h": 0}, {"f": 1, "g": 16, "h": 0})
    GeometricMean(ratio=1.0, count=2, left_out=1)
    """
    logs = [
        math.log(score / baselines[name])
        for name, score in scores.items()
        if score > 0 and baselines[name] > 0
    ]
    ratio = math.exp(sum(logs) / len(logs)) if logs else 1.0
    return GeometricMean(ratio, len(logs), len(scores) - len(logs))


@dataclass(frozen=True, slots=True)
class AllocationResult:
    """Scores of an optimised module's functions with registers.

    Of those `asked`, a policy was, or left them to LLVM's own heuristic.
    """

    module: str
    module_sha256: str
    settings: Mapping[str, Any]
    llvm_version: str
    decisions: int
    scores: Mapping[str, AllocationScore] = field(repr=False)
    machine_code_sha256: str
    asked: frozenset[str] = frozenset()

    @property
    def score(self) -> float:
        """The sum of the functions' scores, by which policies are compared."""
        return AllocationScore.total(self.scores.values()).value

    @property
    def digest(self) -> str:
        """The hash of what came out: the machine code's."""
        return self.machine_code_sha256

    def record(self) -> dict[str, Any]:
        """The result as JSON values: scores, hash and settings."""
        return {
            "score": self.score,
            "functions": {name: score.value for name, score in self.scores.items()},
            "machine_code_sha256": self.machine_code_sha256,
            "settings": dict(self.settings),
        }


@dataclass(frozen=True)
class OptimizedModule:
    """A module after the optimiser, the functions that ask, and, after a baseline, frequencies."""

    module: Module
    options: CompileOptions
    functions: tuple[str, ...] = ()
    frequencies: Mapping[str, Frequencies] = field(default_factory=dict, repr=False)


class Allocator:
    """Allocates the registers of modules and of single functions, with one compiler."""

    def __init__(self, compiler: Compiler, problem: Problem) -> None:
        self.compiler: Final = compiler
        self.problem: Final = problem

    def optimize(self, module: Module, options: CompileOptions) -> OptimizedModule:
        """Optimise a module."""
        return run_to_end(self.optimizing(module, options))

    def optimizing(self, module: Module, options: CompileOptions) -> Steps[OptimizedModule]:
        """`optimize`, for several at once (`llvm._waiting`)."""
        product = (yield from self.compiler.running(module, options, task=OPTIMIZE)).product
        return OptimizedModule(
            module=Module(module.name, product.data),
            options=replace(options, opt_level=product.opt_level),
        )

    def find_functions(self, optimized: OptimizedModule) -> OptimizedModule:
        """Return the module with the names of the functions that ask, alike under every policy."""
        return run_to_end(self.finding_functions(optimized))

    def finding_functions(self, optimized: OptimizedModule) -> Steps[OptimizedModule]:
        """`find_functions`, for several at once (`llvm._waiting`)."""
        names: dict[str, None] = {}

        def watch(observation: Observation) -> Action:
            names[observation.context] = None
            return self.problem.fallback_action(observation)

        yield from self._producing(optimized, {self.problem: watch})
        return replace(optimized, functions=tuple(names))

    def take_apart(self, optimized: OptimizedModule) -> dict[str, OptimizedModule]:
        """Each function that LLVM asks about as a module of its own."""
        return run_to_end(self.taking_apart(optimized))

    def taking_apart(self, optimized: OptimizedModule) -> Steps[dict[str, OptimizedModule]]:
        """`take_apart`, for several at once (`llvm._waiting`)."""
        names, task = optimized.functions, extract(optimized.functions)
        running = self.compiler.running(optimized.module, optimized.options, task=task)
        product = (yield from running).product
        parts: dict[str, OptimizedModule] = {}
        start = 0
        for name, size in zip(names, product.sizes, strict=True):
            data = product.data[start : start + size]
            module = Module(f"{optimized.module.name}:{name}", data)
            parts[name] = OptimizedModule(module, optimized.options, functions=(name,))
            start += size
        return parts

    def baseline(
        self, optimized: OptimizedModule, policy: PolicyLike | None = None
    ) -> tuple[AllocationResult, OptimizedModule]:
        """Allocate under a policy, or LLVM's own heuristic, and learn the block frequencies."""
        return run_to_end(self.comparing(optimized, policy))

    def comparing(
        self, optimized: OptimizedModule, policy: PolicyLike | None = None
    ) -> Steps[tuple[AllocationResult, OptimizedModule]]:
        """`baseline`, for several at once (`llvm._waiting`)."""
        answers = {self.problem: policy} if policy else {}
        product = yield from self._producing(optimized, answers, ALLOCATE_WITH_FREQUENCIES)
        printed = block_frequencies(product.stderr)
        frequencies = {
            function.name: complete_frequencies(function, printed.pop(function.name))
            for function in machine_functions(product.data.decode(), optimized.module.name)
            if function.name in printed
        }
        if printed:
            raise ModuleError(
                optimized.module.name,
                "register allocation: expected block frequencies of its functions, found those of "
                f"{next(iter(printed))!r}",
            )
        known = replace(optimized, frequencies=MappingProxyType(frequencies))
        return self.result(known, product), known

    def allocate(self, optimized: OptimizedModule, policy: PolicyLike) -> AllocationResult:
        """Allocate with a policy, after `baseline`."""
        asked: set[str] = set(as_policy(policy).left)
        watched = WatchedPolicy(policy, self.problem, lambda seen, _: asked.add(seen.context))
        product = run_to_end(self._producing(optimized, {self.problem: watched}))
        return replace(self.result(optimized, product), asked=frozenset(asked))

    def result(self, optimized: OptimizedModule, product: Product) -> AllocationResult:
        """Score the machine code that came out of a compilation of the module."""
        name = optimized.module.name
        scores = {
            function.name: score_function(function, optimized.frequencies[function.name])
            for function in machine_functions(product.data.decode(), name)
            if function.name in optimized.frequencies
        }
        return AllocationResult(
            module=name,
            module_sha256=product.module_sha256,
            settings=product.settings,
            llvm_version=product.llvm_version,
            decisions=product.decisions,
            scores=MappingProxyType(scores),
            machine_code_sha256=hashlib.sha256(product.data).hexdigest(),
        )

    def _producing(
        self,
        optimized: OptimizedModule,
        answers: Mapping[Problem, PolicyLike],
        task: Task = ALLOCATE,
    ) -> Steps[Product]:
        running = self.compiler.running(optimized.module, optimized.options, answers, task)
        return (yield from running).product

"""Baselines: what policies are compared with, compiled once and remembered."""

from __future__ import annotations

import copy
from contextlib import nullcontext

from mlgo_gym.corpus._corpus import Module
from mlgo_gym.llvm._compiler import Compiler
from mlgo_gym.llvm._result import CompilationResult
from mlgo_gym.llvm._waiting import Steps, run_to_end
from mlgo_gym.llvm.command._options import CompileOptions
from mlgo_gym.problems._problem import Problem
from mlgo_gym.runners._base import RunnerFactory
from mlgo_gym.runners._policy import RunnerPolicy


class BaselineCache:
    """Results of what policies are compared with, by module and options.

    It belongs to one `Compiler`, so to one version of LLVM.

    Args:
        compiler: what compiles.
        problem: what a runner is asked.
        runner: what the baseline's answers come from; ``None`` is LLVM's own heuristic, with the
            advisor off.
    """

    def __init__(
        self, compiler: Compiler, problem: Problem, runner: RunnerFactory | None = None
    ) -> None:
        self._compiler = compiler
        self._problem = problem if runner else None
        self._runner = runner
        self._results: dict[tuple[str, CompileOptions], CompilationResult] = {}

    def get(self, module: Module, options: CompileOptions) -> CompilationResult:
        """The baseline of a module, compiled the first time it is asked for.

        Raises:
            ModuleError: LLVM refused the module.
            CompilationError: LLVM crashed or outran its deadline.
        """
        return run_to_end(self.compiling(module, options))

    def compiling(self, module: Module, options: CompileOptions) -> Steps[CompilationResult]:
        """`get`, for several at once (`llvm._waiting`)."""
        key = (module.sha256, options)
        if key not in self._results:
            policy = RunnerPolicy(self._runner) if self._runner else None
            with (
                policy or nullcontext(),
                self._compiler.start(module, self._problem, options) as compilation,
            ):
                yield compilation
                while (observation := compilation.next_observation()) is not None:
                    if policy:
                        compilation.answer(policy(observation))
                    yield compilation
                self._results[key] = compilation.result
        return self._results[key]

    def copy_for(self, compiler: Compiler) -> BaselineCache:
        """What is known, for another compiler of the same LLVM."""
        twin = copy.copy(self)
        vars(twin).update(_compiler=compiler, _results=dict(self._results))
        return twin


def relative_reduction(size_bytes: int, baseline_size_bytes: int) -> float:
    """The share of the baseline that was saved: ``1 - size / baseline``, positive is better.

    Where the baseline is empty it is 0 if the size is too, otherwise -1.

    >>> relative_reduction(90, 100), relative_reduction(150, 100), relative_reduction(8, 0)
    (0.1, -0.5, -1.0)
    """
    if baseline_size_bytes == 0:
        return 0.0 if size_bytes == 0 else -1.0
    return (baseline_size_bytes - size_bytes) / baseline_size_bytes

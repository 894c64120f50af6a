"""Baselines: what policies are compared with, compiled once and remembered."""

from __future__ import annotations

import copy

from mlgo_gym.corpus._corpus import Module
from mlgo_gym.llvm._compiler import Compiler
from mlgo_gym.llvm._result import CompilationResult
from mlgo_gym.llvm._waiting import Steps, run_to_end
from mlgo_gym.llvm.command._options import CompileOptions
from mlgo_gym.problems._policy import PolicyLike
from mlgo_gym.problems._problem import Problem


class BaselineCache:
    """Results of what policies are compared with, by module and options.

    It belongs to one `Compiler`, so to one version of LLVM.

    Args:
        compiler: what compiles.
        problem: what the policy is asked.
        policy: what the baseline's answers come from; ``None`` is LLVM's own heuristic, with the
            advisor off.
    """

    def __init__(
        self, compiler: Compiler, problem: Problem, policy: PolicyLike | None = None
    ) -> None:
        self._compiler = compiler
        self._answers = {problem: policy} if policy else {}
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
            compilation = yield from self._compiler.running(module, options, self._answers)
            self._results[key] = compilation.result
        return self._results[key]

    def copy_for(self, compiler: Compiler) -> BaselineCache:
        """What is known, for another compiler of the same LLVM."""
        twin = copy.copy(self)
        vars(twin).update(_compiler=compiler, _results=dict(self._results))
        return twin

"""What the environments of register allocation share: one function an episode, LLVM's score."""

from __future__ import annotations

from abc import abstractmethod
from collections import deque
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar, Unpack

import numpy as np

from mlgo_gym.corpus._corpus import Corpus, Module
from mlgo_gym.envs._compilation_env import CompilationEnv, CompilationSettings, asked_module
from mlgo_gym.envs._observation_space import ObservationDict
from mlgo_gym.errors import (
    CompilationError,
    CorpusError,
    DecisionLimitError,
    ModuleError,
    OptionsError,
    UsageError,
)
from mlgo_gym.llvm._compilation import Compilation
from mlgo_gym.llvm._compiler import options_of
from mlgo_gym.llvm._task import ALLOCATE
from mlgo_gym.llvm._waiting import Steps
from mlgo_gym.problems._problem import Action, Problem
from mlgo_gym.runners._base import RunnerFactory
from mlgo_gym.runners._policy import RunnerPolicy
from mlgo_gym.scoring._allocation import AllocationResult, Allocator, OptimizedModule
from mlgo_gym.scoring._allocation import relative_cost_reduction as reduction
from mlgo_gym.stream._events import Observation

DEFAULT_DECISION_LIMIT: Final = 50_000
"""How many decisions a function may take."""

_REMEMBERED_BYTES: Final = 1 << 28
"""How much bitcode of functions is kept, so that no module is optimised twice for nothing."""

_ILLEGAL_ACTION: Final = ("error", "fallback")

ActionT = TypeVar("ActionT")
ProblemT = TypeVar("ProblemT", bound=Problem)


class AllocationSettings(CompilationSettings, total=False):
    """What the environments of register allocation take by keyword."""

    illegal_action: str
    decision_limit: int
    baseline: RunnerFactory | None


@dataclass
class _Parts:
    """A module taken apart, and the baselines of its functions as they become known."""

    module: Module
    functions: dict[str, OptimizedModule]
    baselines: dict[str, AllocationResult] = field(default_factory=dict)

    def size_bytes(self) -> int:
        """The size of its functions' bitcode."""
        return sum(len(function.module.data) for function in self.functions.values())


class AllocationEnv(CompilationEnv[ActionT, ProblemT]):
    """One function an episode; see `RegallocEvictionEnv` for what all of them have in common."""

    def __init__(
        self,
        corpus: Corpus | str | Path | None,
        problem: ProblemT,
        *,
        illegal_action: str = "error",
        decision_limit: int = DEFAULT_DECISION_LIMIT,
        baseline: RunnerFactory | None = None,
        **settings: Unpack[CompilationSettings],
    ) -> None:
        if illegal_action not in _ILLEGAL_ACTION:
            raise OptionsError(
                f"illegal_action: expected one of {', '.join(_ILLEGAL_ACTION)}, found "
                f"{illegal_action!r}"
            )
        if not isinstance(decision_limit, int) or decision_limit < 1:
            raise OptionsError(
                f"decision_limit: expected a whole number above 0, found {decision_limit!r}"
            )
        super().__init__(corpus, problem, **settings)
        self._illegal_action = illegal_action
        self._decision_limit = decision_limit
        self._baseline_runner = baseline
        self._infinite = problem.infinite_features()
        self._allocator = Allocator(self.compiler, problem)
        self._known: dict[str, _Parts] = {}
        self._modules: deque[str] = deque()
        self._parts: _Parts | None = None
        self._functions: deque[str] = deque()
        self._function = ""

    def _begin(self, options: dict[str, Any], *, is_seeded: bool) -> Steps[dict[str, Any]]:
        asked = asked_module(options, ("module", "function"))
        function = options.get("function")
        if not isinstance(function, str | None):
            raise OptionsError(f"reset options: expected a function's name, found {function!r}")
        if is_seeded:
            self._modules.clear()
            self._functions.clear()
        skipped: dict[str, str] = {}
        if asked is None and function is None:
            self._compilation = yield from self._start_next(skipped)
        else:
            self._open(asked, function)
            self._compilation = yield from self._start(self._functions.popleft())
        return {
            "skipped": skipped,
            "baseline_score": self._baseline().score,
            "settings": self._compilation.settings,
        }

    def _open(self, asked: str | Module | None, function: str | None) -> None:
        """Turn to the module that was asked for, and to a function in it."""
        if asked is not None:
            module = asked if isinstance(asked, Module) else self.corpus[asked]
            self._parts = self._take_apart(module)
        if self._parts is None:
            raise OptionsError("reset options: expected a module with the first function")
        names = list(self._parts.functions)
        if not names:
            raise ModuleError(self._parts.module.name, "asks for no decision in any function")
        if function is not None and function not in names:
            raise ModuleError(
                self._parts.module.name,
                f"expected one of its {len(names)} functions that ask, found {function!r}",
            )
        self._functions = deque(names[names.index(function) if function else 0 :])

    def _start_next(self, skipped: dict[str, str]) -> Steps[Compilation]:
        """Go on to the next function that can be used, of this module or of the next ones."""
        for _ in range(2 * len(self.corpus) + 1):  # the rest of one round, and a whole one
            while self._functions:
                name = self._functions.popleft()
                try:
                    return (yield from self._twice(partial(self._start, name)))
                except (CompilationError, ModuleError) as error:
                    skipped[self._opened().functions[name].module.name] = str(error)
            self._turn_to_next_module(skipped)
        last = f"; the last: {skipped.popitem()[1]}" if skipped else ""
        raise CorpusError(
            f"corpus {str(self.corpus.folder)!r}: expected a function that asks for a decision, "
            f"found none among {len(self.corpus)} modules{last}"
        )

    def _turn_to_next_module(self, skipped: dict[str, str]) -> None:
        if not self._modules:
            order = self.np_random.permutation(len(self.corpus))
            self._modules.extend(self.corpus.names[int(index)] for index in order)
        name = self._modules.popleft()
        if name not in self._unusable:
            try:
                self._parts = self._take_apart(self.corpus[name])
                self._functions = deque(self._parts.functions)
            except (CompilationError, ModuleError) as error:
                self._unusable[name] = str(error)
        if name in self._unusable:
            skipped[name] = self._unusable[name]

    def _take_apart(self, module: Module) -> _Parts:
        if module.sha256 not in self._known:
            optimized = self._allocator.optimize(module, options_of(module, self._opt_level))
            optimized = self._allocator.find_functions(optimized)
            functions = self._allocator.take_apart(optimized)
            self._known[module.sha256] = _Parts(module, functions)
            self._forget_the_oldest()
        return self._known[module.sha256]

    def _forget_the_oldest(self) -> None:
        """Let go of modules that were taken apart first, until the rest is small enough."""
        sizes = {name: parts.size_bytes() for name, parts in self._known.items()}
        excess = sum(sizes.values()) - _REMEMBERED_BYTES
        for name in list(self._known)[:-1]:
            if excess > 0:
                excess -= sizes[name]
                del self._known[name]

    def _start(self, name: str) -> Steps[Compilation]:
        self._pending = None
        self._function = name
        parts = self._opened()
        if name not in parts.baselines:
            self._learn_baseline(parts, name)
        function = parts.functions[name]
        compilation = self.compiler.start(
            function.module, self.problem, function.options, task=ALLOCATE
        )
        yield compilation
        self._pending = compilation.next_observation()
        if self._pending is None:
            raise ModuleError(function.module.name, "asks for no decision")
        return compilation

    def _learn_baseline(self, parts: _Parts, name: str) -> None:
        policy = RunnerPolicy(self._baseline_runner) if self._baseline_runner else None
        result, parts.functions[name] = self._allocator.baseline(parts.functions[name], policy)
        parts.baselines[name] = result

    def _choose(
        self, action: ActionT | Action, observation: Observation
    ) -> tuple[Action, dict[str, Any]]:
        chosen = self._number(action)
        if self._illegal_action == "error":
            return chosen, {}  # LLVM's answer is checked when it is given
        try:
            self.problem.encode_advice(chosen, observation)
        except UsageError:
            return self.problem.fallback_action(observation), {"illegal_action": chosen}
        return chosen, {}

    @abstractmethod
    def _number(self, action: ActionT | Action) -> Action:
        """An action as the number that it stands for."""

    def _check_limits(self, compilation: Compilation) -> None:
        if self._pending is not None and compilation.decisions >= self._decision_limit:
            raise DecisionLimitError(
                compilation.module.name, f"took more than its {self._decision_limit} decisions"
            )

    def _finish(self, compilation: Compilation) -> tuple[float, dict[str, Any]]:
        parts, baseline = self._opened(), self._baseline()
        result = self._allocator.result(parts.functions[self._function], compilation.product)
        (score,) = result.scores.values()
        outcome = {
            "score": result.score,
            "baseline_score": baseline.score,
            "counts": dict(score.counts),
            "machine_code_sha256": result.machine_code_sha256,
            "settings": dict(result.settings),
        }
        return reduction(result.score, baseline.score), outcome

    def _info(self, compilation: Compilation) -> dict[str, Any]:
        names = {"module": self._opened().module.name, "function": self._function}
        return super()._info(compilation) | names

    def _observation(self) -> ObservationDict:
        if self._pending is None:
            return {
                each.spec.name: np.zeros(each.spec.shape, each.spec.dtype)
                for each in self.problem.features
            }
        arrays = self._pending.arrays()
        for feature in self._infinite:
            values = arrays[feature.spec.name]
            values[~np.isfinite(values)] = feature.high
        return arrays

    def _describe(self, compilation: Compilation, pending: Observation | None) -> list[str]:
        last = "none" if self._last_action is None else f"{self._last_action:g}"
        where = f"function {self._function} of {self._opened().module.name}"
        lines = [f"{where}, decision {compilation.decisions}", f"  last action: {last}"]
        if pending is None:
            return [*lines, "  no decision is pending"]
        return lines + self._shown(pending)

    @abstractmethod
    def _shown(self, pending: Observation) -> list[str]:
        """What of a pending decision a person sees."""

    def _opened(self) -> _Parts:
        if self._parts is None:
            raise UsageError("reset: expected an episode, found none")
        return self._parts

    def _baseline(self) -> AllocationResult:
        return self._opened().baselines[self._function]

"""What the environments of register allocation share: one function an episode, LLVM's score."""

from __future__ import annotations

from abc import abstractmethod
from collections import deque
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Final, TypeVar, Unpack

import numpy as np

from mlgo_gym.corpus._corpus import Corpus, Module
from mlgo_gym.envs._compilation_env import Asked, CompilationEnv, CompilationSettings
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
from mlgo_gym.llvm.command._options import CompileOptions
from mlgo_gym.problems._policy import Action, PolicyLike
from mlgo_gym.problems._problem import Problem
from mlgo_gym.scoring._allocation import AllocationResult, Allocator, OptimizedModule
from mlgo_gym.scoring._measures import reward_of
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
    baseline: PolicyLike | None


@dataclass
class _Parts:
    """A bitcode taken apart, and the baselines of its functions as they become known."""

    functions: dict[str, OptimizedModule]
    baselines: dict[str, AllocationResult] = field(default_factory=dict)

    def size_bytes(self) -> int:
        """The size of its functions' bitcode."""
        return sum(len(function.module.data) for function in self.functions.values())


@dataclass(frozen=True)
class _Place:
    """A module that is open, and those of its functions that come next."""

    module: Module
    parts: _Parts
    rest: tuple[str, ...]


class AllocationEnv(CompilationEnv[ActionT, ProblemT]):
    """One function an episode; see `RegallocEvictionEnv` for what all of them have in common."""

    _reset_options: ClassVar[tuple[str, ...]] = ("module", "function")

    def __init__(
        self,
        corpus: Corpus | str | Path | None,
        problem: ProblemT,
        *,
        illegal_action: str = "error",
        decision_limit: int = DEFAULT_DECISION_LIMIT,
        baseline: PolicyLike | None = None,
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
        self._baseline_policy = baseline
        self._infinite = problem.infinite_features()
        self._allocator = Allocator(self.compiler, problem)
        self._known: dict[tuple[str, CompileOptions], _Parts] = {}
        self._modules: deque[str] = deque()
        self._place: _Place | None = None
        self._function = ""

    def _begin(self, asked: Asked, *, is_seeded: bool) -> Steps[tuple[Compilation, dict[str, Any]]]:
        if is_seeded:
            self._modules.clear()
            self._place = self._place and replace(self._place, rest=())
        skipped: dict[str, str] = {}
        if asked == Asked():
            compilation = yield from self._start_next(skipped)
        else:
            compilation = yield from self._start(self._found(asked))
        return compilation, {
            "skipped": skipped,
            "baseline_score": self._baseline().score,
            "settings": compilation.settings,
        }

    def _found(self, asked: Asked) -> _Place:
        """The module that was asked for, from a function in it on."""
        if asked.module is not None:
            place = self._take_apart(asked.module)
        elif self._place is not None:
            place = self._place
        else:
            raise OptionsError("reset options: expected a module with the first function")
        names = tuple(place.parts.functions)
        if not names:
            raise ModuleError(place.module.name, "asks for no decision in any function")
        if asked.function is not None and asked.function not in names:
            raise ModuleError(
                place.module.name,
                f"expected one of its {len(names)} functions that ask, found {asked.function!r}",
            )
        first = names.index(asked.function) if asked.function else 0
        return replace(place, rest=names[first:])

    def _start_next(self, skipped: dict[str, str]) -> Steps[Compilation]:
        """Go on to the next function that can be used, of this module or of the next ones."""
        for _ in range(2 * len(self.corpus) + 1):  # the rest of one round, and a whole one
            while (place := self._place) is not None and place.rest:
                try:
                    return (yield from self._twice(partial(self._start, place)))
                except (CompilationError, ModuleError) as error:
                    skipped[f"{place.module.name}:{place.rest[0]}"] = str(error)
                    self._place = replace(place, rest=place.rest[1:])
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
                self._place = self._take_apart(self.corpus[name])
            except (CompilationError, ModuleError) as error:
                self._unusable[name] = str(error)
        if name in self._unusable:
            skipped[name] = self._unusable[name]

    def _take_apart(self, module: Module) -> _Place:
        options = options_of(module, self._opt_level)
        key = (module.sha256, options)
        if key not in self._known:
            optimized = self._allocator.optimize(module, options)
            optimized = self._allocator.find_functions(optimized)
            self._known[key] = _Parts(self._allocator.take_apart(optimized))
            self._forget_the_oldest()
        parts = self._known[key]
        return _Place(module, parts, tuple(parts.functions))

    def _forget_the_oldest(self) -> None:
        """Let go of modules that were taken apart first, until the rest is small enough."""
        sizes = {key: parts.size_bytes() for key, parts in self._known.items()}
        excess = sum(sizes.values()) - _REMEMBERED_BYTES
        for key in list(self._known)[:-1]:
            if excess > 0:
                excess -= sizes[key]
                del self._known[key]

    def _start(self, place: _Place) -> Steps[Compilation]:
        """Start with the first function that comes next."""
        self._pending = None
        name, *rest = place.rest
        if name not in place.parts.baselines:
            self._learn_baseline(place.parts, name)
        function = place.parts.functions[name]
        module = replace(function.module, name=f"{place.module.name}:{name}")
        compilation = self.compiler.start(module, self.problem, function.options, task=ALLOCATE)
        yield compilation
        self._pending = compilation.next_observation()
        if self._pending is None:
            raise ModuleError(module.name, "asks for no decision")
        self._place, self._function = replace(place, rest=tuple(rest)), name
        return compilation

    def _learn_baseline(self, parts: _Parts, name: str) -> None:
        result, parts.functions[name] = self._allocator.baseline(
            parts.functions[name], self._baseline_policy
        )
        parts.baselines[name] = result

    def _choose(
        self, action: ActionT | Action, observation: Observation
    ) -> tuple[Action, dict[str, Any]]:
        chosen = self._number(action)
        try:
            self.problem.encode_advice(chosen, observation)
        except UsageError:
            if self._illegal_action == "error":
                raise
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
        parts, baseline = self._opened().parts, self._baseline()
        result = self._allocator.result(parts.functions[self._function], compilation.product)
        (score,) = result.scores.values()
        outcome = {
            "score": result.score,
            "baseline_score": baseline.score,
            "counts": dict(score.counts),
            "machine_code_sha256": result.machine_code_sha256,
            "settings": dict(result.settings),
        }
        return reward_of(result.score, baseline.score), outcome

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

    def _opened(self) -> _Place:
        if self._place is None:
            raise UsageError("reset: expected an episode, found none")
        return self._place

    def _baseline(self) -> AllocationResult:
        return self._opened().parts.baselines[self._function]

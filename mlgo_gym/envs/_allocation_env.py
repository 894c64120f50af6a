"""One function an episode: problems that are measured by what register allocation costs."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar, Final, Unpack

import numpy as np

from mlgo_gym.base import CompilationError, CorpusError, ModuleError, OptionsError, UsageError
from mlgo_gym.corpus import Module
from mlgo_gym.envs._decision_env import DecisionEnv, EnvSettings, ResetRequest, baseline_of
from mlgo_gym.envs._modules import CorporaLike
from mlgo_gym.llvm import ALLOCATE, Compilation, CompileOptions, Compiler, Steps, options_of
from mlgo_gym.problems import PolicyLike, Problem
from mlgo_gym.rollout import AllocationCost, AllocationResult, Allocator, OptimizedModule

_REMEMBERED_BYTES: Final = 1 << 28
"""How much bitcode of functions is kept, so that no module is optimised twice for nothing."""


@dataclass
class _Parts:
    """A bitcode taken apart, and the baselines of its functions as they become known."""

    functions: dict[str, OptimizedModule]
    baselines: dict[str, AllocationResult] = field(default_factory=dict)


@dataclass(frozen=True)
class _Place:
    """A module that is open, and those of its functions that come next."""

    module: Module
    parts: _Parts
    rest: tuple[str, ...]


@dataclass(frozen=True)
class _Episode:
    """A function that is allocated, and what it is compared with."""

    module: Module
    function: str
    optimized: OptimizedModule
    baseline: AllocationResult


class AllocationEnv(DecisionEnv):
    """One function in each episode, measured by LLVM's own score of its register allocation.

    `DecisionEnv` says what all environments have in common. In ``mlgo_gym/RegallocEviction-v0``, a
    step is one live range that finds no register: the action is a position whose mask is 1, the
    live ranges there are evicted, and 32 evicts nothing. In ``mlgo_gym/RegallocPriority-v0``, a
    step is one live range that is queued: the action is its priority, ``float32 (1,)``; the highest
    comes first.

    The info also has ``function``, ``score``, the weighted instructions by kind (``count_loads``,
    ``count_stores``, ``count_copies`` and others), and ``machine_code_sha256``. Counts and hash are
    0 and empty before the end.

    ``reset`` goes on to the next function of the module that asks, in LLVM's order, and then to the
    next module; modules come in an order that is drawn from the seed, and a seed starts anew.
    Options: ``{"module": NAME}`` turns to the first function of that module of the corpus, a
    `mlgo_gym.corpus.Module` to that one's; ``{"function": NAME}`` to that function, of the module
    that is given or open.

    The problem's measure is `mlgo_gym.rollout.AllocationCost`, or one made of it. All else is as
    `CompilationEnv` takes it; ``decision_limit`` is 50,000 where it is ``None``.

    >>> from mlgo_gym.problems import RegallocEviction
    >>> env = AllocationEnv(RegallocEviction())
    >>> observation, info = env.reset(options={"module": "expr_vm.c"})
    >>> observation["mask"].shape, info["function"], info["action_mask"].shape
    ((1, 33), 'expr_run', (33,))
    >>> env.close()
    """

    _reset_options: ClassVar[tuple[str, ...]] = ("module", "function")
    _default_decision_limit: ClassVar[int | None] = 50_000

    def __init__(
        self,
        problem: Problem,
        corpus: CorporaLike | None = None,
        *,
        baseline: PolicyLike | str | None = None,
        **settings: Unpack[EnvSettings],
    ) -> None:
        super().__init__(problem, corpus, **settings)
        if not isinstance(self.measure, AllocationCost):
            raise OptionsError(
                f"{problem.name}: expected a measure of register allocation, found "
                f"{type(self.measure).__name__}"
            )
        self._baseline_policy = baseline_of(problem, baseline)
        self._allocator = Allocator(self.compiler, problem)
        self._known: dict[tuple[str, CompileOptions], _Parts] = {}
        self._modules: deque[str] = deque()
        self._place: _Place | None = None
        self._episode: _Episode | None = None

    def _own_state(self, compiler: Compiler) -> dict[str, Any]:
        return {
            "_allocator": Allocator(compiler, self.problem),
            "_known": dict(self._known),
            "_modules": deque(self._modules),
        }

    def _begin(
        self, asked: ResetRequest, skipped: dict[str, str], *, is_seeded: bool
    ) -> Steps[Compilation]:
        if is_seeded:
            self._modules.clear()
            self._place = self._place and replace(self._place, rest=())
        if asked == ResetRequest():
            return (yield from self._start_next(skipped))
        place = yield from self._found(asked)
        return (yield from self._start(place))

    def _found(self, asked: ResetRequest) -> Steps[_Place]:
        """The module that was asked for, from a function in it on."""
        if asked.module is not None:
            place = yield from self._take_apart(asked.module)
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
            yield from self._turn_to_next_module(skipped)
        last = f"; the last: {skipped.popitem()[1]}" if skipped else ""
        raise CorpusError(
            f"corpus {self.corpus.folder!r}: expected a function that asks for a decision, "
            f"found none among {len(self.corpus)} modules{last}"
        )

    def _turn_to_next_module(self, skipped: dict[str, str]) -> Steps[None]:
        if not self._modules:
            self._modules.extend(self.corpus.names[index] for index in self._order())
        name = self._modules.popleft()
        if name not in self._unusable:
            try:
                self._place = yield from self._take_apart(self.corpus[name])
            except (CompilationError, ModuleError) as error:
                self._unusable[name] = str(error)
        if name in self._unusable:
            skipped[name] = self._unusable[name]

    def _order(self) -> list[int]:
        """All modules that may be drawn, each once, the likelier ones rather first."""
        if self.weights == "uniform":
            return [int(each) for each in self.np_random.permutation(len(self.corpus))]
        count = int(np.count_nonzero(self._chances))
        drawn = self.np_random.choice(len(self.corpus), count, replace=False, p=self._chances)
        return [int(each) for each in drawn]

    def _forget_drawn(self) -> None:
        self._modules.clear()

    def _take_apart(self, module: Module) -> Steps[_Place]:
        options = options_of(module, self._opt_level)
        key = (module.sha256, options)
        if key not in self._known:
            optimized = yield from self._allocator.optimizing(module, options)
            optimized = yield from self._allocator.finding_functions(optimized)
            functions = yield from self._allocator.taking_apart(optimized)
            self._known[key] = _Parts(functions)
            self._forget_the_oldest()
        parts = self._known[key]
        return _Place(module, parts, tuple(parts.functions))

    def _forget_the_oldest(self) -> None:
        """Let go of modules that were taken apart first, until the rest is small enough."""
        sizes = {
            key: sum(len(each.module.data) for each in parts.functions.values())
            for key, parts in self._known.items()
        }
        excess = sum(sizes.values()) - _REMEMBERED_BYTES
        for key in list(self._known)[:-1]:
            if excess > 0:
                excess -= sizes[key]
                del self._known[key]

    def _start(self, place: _Place) -> Steps[Compilation]:
        """Start with the first function that comes next."""
        name, *rest = place.rest
        function = place.parts.functions[name]
        named = replace(function.module, name=f"{place.module.name}:{name}")
        function = replace(function, module=named)
        if name not in place.parts.baselines:
            comparing = self._allocator.comparing(function, self._baseline_policy)
            result, function = yield from comparing
            place.parts.functions[name], place.parts.baselines[name] = function, result
        compilation = self.compiler.start(named, self.problem, function.options, task=ALLOCATE)
        yield from self._first(compilation)
        self._place = replace(place, rest=tuple(rest))
        self._episode = _Episode(place.module, name, function, place.parts.baselines[name])
        return compilation

    def _baseline(self) -> AllocationResult:
        return self._under_way().baseline

    def _result(self, compilation: Compilation) -> AllocationResult:
        return self._allocator.result(self._under_way().optimized, compilation.product)

    def _record(self, result: AllocationResult | None) -> dict[str, Any]:
        """Return the score's counts, each under its name, and the code's hash."""
        (score,) = (result or self._baseline()).scores.values()
        counts = {
            f"count_{name}": np.float64(count if result else 0.0)
            for name, count in score.counts.items()
        }
        return {**counts, "machine_code_sha256": result.machine_code_sha256 if result else ""}

    def _info(self, compilation: Compilation) -> dict[str, Any]:
        episode = self._under_way()
        names = {"module": episode.module.name, "function": episode.function}
        return super()._info(compilation) | names

    def _where(self, compilation: Compilation) -> str:  # noqa: ARG002
        return f"function {self._under_way().function} of {self._under_way().module.name}"

    def _under_way(self) -> _Episode:
        if self._episode is None:
            raise UsageError("reset: expected an episode, found none")
        return self._episode

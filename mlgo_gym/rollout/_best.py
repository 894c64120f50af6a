"""The best of several compilations of a module: the whole, or the best of each function.

Registers are allocated function by function, and what is decided in one changes no other. Where a
measure is by function, a module is therefore compiled once more, and each of its functions comes
out as under whoever was best there: by recorded answers, or, where nobody was better than LLVM's
own heuristic, by that. Otherwise the best is one of the results that there are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol, TypeVar

from mlgo_gym.problems import PolicyLike, Problem, WatchedPolicy
from mlgo_gym.rollout._measures import Measure, Result, Unit, measure_of
from mlgo_gym.rollout._recorded import RecordedContexts
from mlgo_gym.stream import Observation

Best = Mapping[str, str]
"""The name of the best of each context, or of the whole as ``""``."""


def joins(problem: Problem) -> bool:
    """Whether the best of each function of a module can be had."""
    return problem.can_leave and measure_of(problem).by_function


def best_of(measure: Measure, results: Mapping[str, Result], *, by_function: bool = False) -> Best:
    """Whose result is best, the first of equal ones; LLVM's own is the first there is.

    >>> from mlgo_gym import Compiler, Module
    >>> from mlgo_gym.rollout import TextSize
    >>> module = Module.from_ir("define i32 @f(i32 %x) { ret i32 %x }")
    >>> with Compiler() as compiler:
    ...     made = compiler.compile_module(module)
    >>> best_of(TextSize(), {"LLVM": made, "other": made})
    {'': 'LLVM'}
    """
    own = next(iter(results.values()))
    rewards = {name: measure.rewards(result, own) for name, result in results.items()}
    contexts = [each for each in measure.rewards(own, own) if bool(each) == by_function]
    return {each: max(rewards, key=lambda name: rewards[name][each]) for each in contexts}


class _IsDecided(Protocol):
    @property
    def context(self) -> str: ...


_Decided = TypeVar("_Decided", bound=_IsDecided)


class Tries:
    """A unit's compilations: LLVM's own, which is the first, and those under policies.

    Args:
        unit: what is compiled.
        problem: what LLVM asks for.
        own: what LLVM's own heuristic is called.
        by_function: the best of each function is wanted, for which answers are remembered.
    """

    def __init__(self, unit: Unit, problem: Problem, own: str, *, by_function: bool) -> None:
        self._unit = unit
        self._problem = problem
        self._own = own
        self._by_function = by_function
        self._policies: dict[str, PolicyLike] = {}
        self._answers: dict[str, dict[str, list[bytes]]] = {}
        self.results: dict[str, Result] = {own: unit.baseline()}

    def attempt(self, name: str, policy: PolicyLike) -> Result:
        """Compile with a policy; what fails is not among the `results`."""
        answers: dict[str, list[bytes]] = {}

        def watch(observation: Observation, advice: bytes) -> None:
            answers.setdefault(observation.context, []).append(advice)

        watched = WatchedPolicy(policy, self._problem, watch) if self._by_function else policy
        result = self._unit.attempt(watched)
        self.results[name], self._policies[name], self._answers[name] = result, policy, answers
        return result

    def best(self, measure: Measure) -> tuple[Best, Result]:
        """Return the best by the unit's own measure, and its result.

        Never worse than the best of the whole, which takes its place where functions are not by
        themselves after all, as with ``-enable-ipra``.
        """
        best = best_of(measure, self.results, by_function=self._by_function)
        result = self.made(best)
        whole = min(self.results, key=lambda name: measure.score(self.results[name]))
        if measure.score(result) <= measure.score(self.results[whole]):
            return best, result
        return {"": whole}, self.results[whole]

    def made(self, best: Best) -> Result:
        """Return the result of the best, if need be of one more compilation."""
        whole = self._whole(best)
        if whole is not None:
            return self.results[whole]
        return self._unit.attempt(self._joined(best))

    def answering(self, best: Best) -> PolicyLike | None:
        """Return a policy that answers like the best; ``None`` for LLVM's own heuristic."""
        whole = self._whole(best)
        return self._joined(best) if whole is None else self._policies.get(whole)

    def kept(self, best: Best, decisions: Mapping[str, Sequence[_Decided]]) -> list[_Decided]:
        """Return the decisions that the best compilation took over, in LLVM's order."""
        if whole := best.get(""):
            return list(decisions.get(whole, ()))
        return [
            decision
            for context in self._contexts()
            for decision in decisions.get(self._who(best, context), ())
            if decision.context == context
        ]

    def _contexts(self) -> dict[str, None]:
        """In which LLVM asks, in its order, which is the same under every policy."""
        return {context: None for each in self._answers.values() for context in each}

    def _who(self, best: Best, context: str) -> str:
        return best.get("") or best.get(context, self._own)

    def _whole(self, best: Best) -> str | None:
        names = {self._who(best, context) for context in self._contexts()} or {self._own}
        names = {best[""]} if "" in best else names
        return names.pop() if len(names) == 1 else None

    def _joined(self, best: Best) -> RecordedContexts:
        chosen = {context: self._who(best, context) for context in self._contexts()}
        answers = {
            context: self._answers[name][context]
            for context, name in chosen.items()
            if name != self._own
        }
        left = [context for context, name in chosen.items() if name == self._own]
        return RecordedContexts(self._problem, answers, left)


def best_by_problem(
    unit: Unit, problem: Problem, policies: Mapping[str, PolicyLike], own: str
) -> Best:
    """Find the best by the problem's own measure, for objects of the same module."""
    measure = measure_of(problem)
    tries = Tries(unit, problem, own, by_function=joins(problem))
    for name, policy in policies.items():
        tries.attempt(name, policy)
    best, _ = tries.best(measure)
    return best

"""The search oracle: the smallest text of one module that can be found in a given time.

Another measure may take the place of the text, such as what programs execute. It knows nothing
but the compiler. All its compilations branch off one that waits at its first
decision. In turns:

1. Starts: LLVM's default, never, calls that cost nothing, and the given policy.
2. Limits: the inline cost below which calls are inlined, by how often their callee is used.
3. Groups: one compilation of the best choice so far; at the first call of each group of calls a
   branch gives the whole group the other answer. What made the score smaller is combined, all at
   once, then the better half, and so on. Levels take turns, from all calls of a callee to single
   calls.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import numpy as np

from mlgo_gym.base import (
    CompilationError,
    InternalError,
    ModuleError,
    OptionsError,
    WorkloadError,
)
from mlgo_gym.corpus import Module
from mlgo_gym.llvm import Compilation, CompilationResult, CompileOptions, Compiler
from mlgo_gym.problems import Answer, InliningForSize, default, never
from mlgo_gym.rollout import Measure, measure_of, trace_of
from mlgo_gym.search._goal import LIMITS, CallGroup, Choice, Found, SearchSetting, group_of
from mlgo_gym.stream import Observation

_FEW_USES: Final = 2
"""How many classes of callees have so few uses that inlining may make the callee disappear."""

_LIMIT_STARTS: Final = (
    *(("default", few, None) for few in (80, 40, 20)),
    *(("never", few, many) for few in (80, 40) for many in (-10, 0, 20)),
)
"""Base, limit for callees of few uses, limit for the others."""

_RUN_STARTS: Final = tuple(("default", limit, limit) for limit in (80, 320))
"""Starts tried before these where programs run: what is inlined need not be called."""

_TRIALS: Final = 24
"""How many groups are tried before what helped is combined."""

_GIVEN: Final = "given"
"""The policy that is given to start from."""

_ORDER: Final = ("callee", "call", "caller", "single")


def small(observation: Observation) -> int:
    """Inline what costs nothing: the call is as large as what takes its place."""
    return int(observation["cost_estimate"][0] <= 0)


class Oracle:
    """Searches one module; it may be used once.

    Args:
        compiler: what compiles; branches need room for two at once.
        module: what is compiled.
        setting: how long, and in which order.
        problem: what LLVM asks for; ``None`` is `InliningForSize` with LLVM's growth limit.
        options: as in `Compiler.start`.
        policy: one more policy to start from, which comes before the other starts and is compiled
            whatever the budget.
        start: a choice to go on from, as an earlier search found it.
        measure: what to minimise; ``None`` is the problem's own, the text.
        plain: LLVM's result without an advisor, which is the baseline and limits the text;
            ``None`` is the result of its default answers. They differ where LLVM stops asking.

    Attributes:
        compilations: how many compilations and branches there have been.
        wrong: how many of them gave a program that did something wrong.

    Raises:
        OptionsError: the start needs a policy that is not given.

    >>> from mlgo_gym import SAMPLE_CORPUS, Compiler, Corpus, InliningForSize
    >>> module = Corpus.load(SAMPLE_CORPUS)["digest.c"]
    >>> with Compiler() as compiler:
    ...     oracle = Oracle(compiler, module, SearchSetting(budget_s=0.5))
    ...     found = list(oracle.improvements())
    >>> found[-1].size_bytes <= found[0].size_bytes
    True
    """

    def __init__(
        self,
        compiler: Compiler,
        module: Module,
        setting: SearchSetting,
        problem: InliningForSize | None = None,
        options: CompileOptions | None = None,
        *,
        policy: Answer | None = None,
        start: Choice | None = None,
        measure: Measure | None = None,
        plain: CompilationResult | None = None,
    ) -> None:
        given = {} if policy is None else {_GIVEN: policy}
        self._bases: dict[str, Answer] = {
            "default": default,
            **given,
            "never": never,
            "small": small,
        }
        if start is not None and start.base not in self._bases:
            raise OptionsError(f"start: expected one of {', '.join(self._bases)} as base, found "
                               f"{start.base!r}")  # fmt: skip
        self._compiler = compiler
        self._module = module
        self._problem = problem or InliningForSize()
        self._options = options
        self._start = start
        self._measure = measure or measure_of(self._problem)
        self._plain = plain
        self._most_text = math.inf if setting.most_text is None else setting.most_text
        self._clock = setting.clock
        self._deadline = setting.clock() + setting.budget_s
        self._random = np.random.default_rng(setting.seed)
        self._found: Found | None = None
        self._observations: list[Observation] = []
        self._tried: set[tuple[CallGroup, int]] = set()
        self.compilations = 0
        self.wrong = 0
        self._root: Compilation | None = None

    def improvements(self) -> Iterator[Found]:
        """Search until the budget is used up.

        Yields:
            First LLVM's default, then whatever is better than all before.

        Raises:
            ModuleError: LLVM refused the module, or it cannot be measured.
            WorkloadError: a program does something else than it must under LLVM's default answers.
            CompilationError: LLVM crashed or hung under its own default answers.
        """
        with self._compiler.start(
            self._module,
            self._problem,
            self._options,
            keep_object=self._measure.keeps_objects,
            task=self._measure.task,
        ) as root:
            if root.next_observation() is not None:
                self._root = root
                yield from self._search()
            elif (score := self._score(root)) is not None:
                self.compilations += 1
                yield self._new(Choice("default"), root, (), score)

    def _score(self, compilation: Compilation) -> float | None:
        """Score an ended compilation; ``None`` for too much text, or a program that went wrong."""
        result, best = compilation.result, self._found
        if best and result.text_size_bytes > self._most_text * best.default_size_bytes:
            return None
        try:
            return self._measure.score(result)
        except (ModuleError, WorkloadError):
            if best is None:
                raise
            self.wrong += 1
            return None

    def _plain_numbers(self, size_bytes: int, score: float) -> tuple[int, float]:
        """The text and score of LLVM's own: those of the default answers, which come first."""
        if self._plain is None:
            return size_bytes, score
        return self._plain.text_size_bytes, self._measure.score(self._plain)

    def _new(
        self,
        choice: Choice,
        compilation: Compilation,
        observations: Sequence[Observation],
        score: float,
    ) -> Found:
        trace, size_bytes = trace_of(compilation, observations), compilation.result.text_size_bytes
        best = self._found
        plain = self._plain_numbers(size_bytes, score)
        if best:
            plain = best.default_size_bytes, best.default_score
        return Found(choice, trace, size_bytes, plain[0], self.compilations, score, plain[1])

    def _search(self) -> Iterator[Found]:
        yield self._best()
        if _GIVEN in self._bases:  # whatever time there is, it is no worse than what was given
            yield from self._found_by(Choice(_GIVEN), to_the_end=True)
        yield from self._try_all(Choice(name) for name in ("never", "small"))
        if self._start is not None:
            yield from self._try_all([self._start])
        else:
            yield from self._search_limits()
        while not self._is_over():
            tried = len(self._tried)
            for level in _ORDER:
                yield from self._search_groups(level)
            if len(self._tried) == tried:  # all has been tried: again, around the best
                self._tried.clear()

    def _best(self) -> Found:
        """The best so far, LLVM's default to begin with, which must compile."""
        best = self._found or self._compiled(Choice("default"), to_the_end=True)
        if best is None:
            raise InternalError("oracle: nothing came of LLVM's default answers")
        return best

    def _is_over(self) -> bool:
        return self._clock() >= self._deadline

    def _search_limits(self) -> Iterator[Found]:
        classes = range(len(Choice("default").limits))
        runs = self._measure.keeps_objects or self._measure.task.estimates
        yield from self._try_all(
            Choice(base, (few,) * _FEW_USES + (many,) * (len(classes) - _FEW_USES))
            for base, few, many in (*(_RUN_STARTS if runs else ()), *_LIMIT_STARTS)
        )
        is_better = True
        while is_better and not self._is_over():
            before = self._best()
            for index in classes:
                for step in (1, -1):
                    yield from self._climb(index, step)
            is_better = self._best() is not before

    def _climb(self, index: int, step: int) -> Iterator[Found]:
        """Move one limit in one direction for as long as it helps."""
        while not self._is_over():
            choice = self._best().choice
            place = LIMITS.index(choice.limits[index]) + step
            if not 0 <= place < len(LIMITS):
                return
            yield from self._try_all([choice.with_limit(index, LIMITS[place])])
            if self._best().choice is choice:
                return

    def _search_groups(self, level: str) -> Iterator[Found]:
        """Try the other answers of a level's groups, each in a branch, and combine what helps."""
        best = self._best()
        scores = self._group_scores(best, self._candidates(level))
        better = (flip for flip in scores if scores[flip] < best.score)
        helpful = sorted(better, key=scores.__getitem__, reverse=True)
        helpful.reverse()  # those that are equal, too
        while helpful and not self._is_over():
            yield from self._try_all([best.choice.with_flips(dict(helpful))])
            if self._best().score <= scores[helpful[0]]:
                return
            helpful = helpful[: len(helpful) // 2]

    def _candidates(self, level: str) -> dict[CallGroup, set[int]]:
        """A few groups and the answers to try for each: at random, large groups rather."""
        policy = self._best().choice.policy(self._bases)
        taken: dict[CallGroup, list[int]] = {}
        for observation in self._observations:
            taken.setdefault(group_of(level, observation), []).append(int(policy(observation)))
        untried = {
            group: answers
            for group, actions in taken.items()
            if (answers := self._untried(group, set(actions)))
        }
        if not untried:
            return {}
        groups = list(untried)
        weights = np.sqrt([len(taken[group]) for group in groups])
        count = min(_TRIALS, len(groups))
        picked = self._random.choice(len(groups), count, replace=False, p=weights / weights.sum())
        return {groups[index]: untried[groups[index]] for index in sorted(picked)}

    def _untried(self, group: CallGroup, actions: set[int]) -> set[int]:
        others = {0, 1} if len(actions) == 2 else {1 - action for action in actions}
        return {action for action in others if (group, action) not in self._tried}

    def _group_scores(
        self, best: Found, candidates: Mapping[CallGroup, set[int]]
    ) -> dict[tuple[CallGroup, int], float]:
        """The score with each answer for each group; each level's groups do not overlap."""
        policy = best.choice.policy(self._bases)
        waiting = dict(candidates)
        scores: dict[tuple[CallGroup, int], float] = {}
        with self._forked() as trunk:
            while waiting and (observation := trunk.next_observation()) is not None:
                group = group_of(next(iter(waiting))[0], observation)
                for action in waiting.pop(group, ()):
                    if self._is_over():
                        return scores
                    self._tried.add((group, action))
                    choice = best.choice.with_flips({group: action})
                    score = self._branched(trunk, choice)
                    if score is not None:
                        scores[group, action] = score
                trunk.answer(policy(observation))
        return scores

    def _branched(self, trunk: Compilation, choice: Choice) -> float | None:
        """The score if another choice goes on from here; ``None`` if it fails or time is up."""
        self.compilations += 1
        policy = choice.policy(self._bases)
        with trunk.fork() as branch, contextlib.suppress(CompilationError):
            for observation in branch:
                if self._is_over():
                    return None
                branch.answer(policy(observation))
            return self._score(branch)
        return None

    def _try_all(self, choices: Iterable[Choice]) -> Iterator[Found]:
        for choice in choices:
            if self._is_over():
                return
            yield from self._found_by(choice)

    def _found_by(self, choice: Choice, *, to_the_end: bool = False) -> Iterator[Found]:
        found = None
        with contextlib.suppress(CompilationError):
            found = self._compiled(choice, to_the_end=to_the_end)
        if found is not None:
            yield found

    def _compiled(self, choice: Choice, *, to_the_end: bool = False) -> Found | None:
        """Compile under a choice while time is left; keep it if it is better than the best."""
        self.compilations += 1
        policy, best = choice.policy(self._bases), self._found
        observations: list[Observation] = []
        with self._forked() as compilation:
            for observation in compilation:
                if not to_the_end and self._is_over():
                    return None
                observations.append(observation)
                compilation.answer(policy(observation))
            score = self._score(compilation)
            if score is None or (best is not None and score >= best.score):
                return None
            found = self._new(choice, compilation, observations, score)
        self._found, self._observations = found, observations
        return found

    def _forked(self) -> Compilation:
        """A compilation at its first decision: all of them branch off one that waits there."""
        if self._root is None:
            raise InternalError("oracle: no compilation to branch off")
        return self._root.fork()

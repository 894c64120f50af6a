"""Answers that a search adds to a tune, for the modules that matter; builds repeat them."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Final, TypeVar

from corpus_tools.printable import first_of
from mlgo_gym.cc import Build, unrepeatable, write_answers
from mlgo_gym.corpus import Corpus, ModuleKey, Packages
from mlgo_gym.lab.tuning._tuned import TUNED, Tuned, exports_of
from mlgo_gym.llvm import Compiler, each, options_of
from mlgo_gym.problems import InliningForSize, Policy
from mlgo_gym.rollout import Code, Measure, Trace, measure_named, replay, trace_path
from mlgo_gym.runners import native_policy
from mlgo_gym.search import ModuleSearch, SearchSetting, search_corpus

LEAST_S: Final = 5.0
"""How long a module is searched at least."""

_SHARE: Final = 0.95
_PASSES: Final = 8
"""Compilations beside the search, in times of all modules: of a target's other modules, and by
clang with the answers that were found."""

_Value = TypeVar("_Value")
Track = Callable[[Iterable[ModuleSearch], int], Iterable[ModuleSearch]]


@dataclass(frozen=True, slots=True)
class TuneSearch:
    """How what was tuned is searched.

    Attributes:
        problem: what LLVM asks for.
        model: what is started from; ``None`` is LLVM's own heuristic.
        budget_s: how long that may take in all, in seconds.
        jobs: how many modules are searched at once.
        timeout_s: for LLVM's part of one compilation.
        reward: what is to be less of each target, a name of `mlgo_gym.rollout.reward_names`;
            ``None`` is what `reward_of_build` says.
        track: shows how far it is.
        warn: is told in one line of modules that cannot be searched.
    """

    problem: InliningForSize
    model: Path | None
    budget_s: float
    jobs: int
    timeout_s: float
    reward: str | None = None
    track: Track = lambda searches, _: searches
    warn: Callable[[str], None] = lambda _: None

    def run(self, build: Build, found: Tuned, folder: Path) -> tuple[Tuned, dict[str, str | None]]:
        """Search the modules that matter, each where it is linked first, and keep the answers.

        Args:
            build: the modules and their commands.
            found: what tuning came to.
            folder: of the traces; what is there is gone on with.

        Returns:
            What tuning came to with what was found, and the modules with answers; with a reason
            where they are left out.
        """
        start = monotonic()
        seconds = self._seconds(found)
        parts, left = self._parts(build, found, seconds)
        unsearched = self._count_unsearched(found, parts, left)
        module_s = max(seconds / max(self._turns(parts), 1), LEAST_S)
        models: dict[str, tuple[float, int]] = {}
        searches: list[ModuleSearch] = []
        with ExitStack() as stack:
            policy = native_policy(self.model, self.problem, stack) if self.model else None
            setting = SearchSetting(module_s, found.seed, most_text=1.0)
            others = (self.problem, policy) if policy else None
            reward = self.reward or reward_of_build(build.corpus)
            for target, keys in parts.items():
                linked = build.corpus.only(key.name for key in found.targets[target])
                measure = measure_named(
                    reward,
                    linked,
                    others,
                    jobs=self.jobs,
                    timeout_s=self.timeout_s,
                    exports=exports_of(target),
                )
                stack.callback(measure.close)
                made = search_corpus(
                    Packages.of(linked).only(keys),
                    folder,
                    self.problem,
                    setting,
                    policy=policy,
                    reward=measure,
                    jobs=self.jobs,
                    timeout_s=self.timeout_s,
                )
                ended = list(self.track(made, len(keys)))
                searches += ended
                names = [search.module for search in ended if not search.error]
                models |= self._by_model(linked, names, measure, policy)
        answers = write_answers(
            build,
            [search for search in searches if not search.error],
            folder,
            self.jobs,
            self.timeout_s,
            models=models,
            keeps_smaller=found.keeps_smaller,
        )
        kept = [name for name, reason in answers.items() if reason is None]
        codes = self._codes(build.corpus, folder, kept)
        failed = {search.module: search.error for search in searches if search.error}
        spent_s = {**found.spent_s, "searching": monotonic() - start}
        found = replace(found, searched=codes, unsearched=unsearched, spent_s=spent_s)
        return found, {**left, **failed, **answers}

    def _parts(
        self, build: Build, found: Tuned, seconds: float
    ) -> tuple[Mapping[str, tuple[ModuleKey, ...]], dict[str, str]]:
        """The modules to search, and those left out since a build would not repeat answers."""
        left: dict[str, str] = {}
        checked: set[str] = set()
        while True:
            parts = self._in_time(found, seconds, left)
            names = [key.name for keys in parts.values() for key in keys if key.name not in checked]
            if not names:
                break
            left |= unrepeatable(build, names, self.jobs, self.timeout_s)
            checked.update(names)
        if left:
            reasons = (f"{name}: {reason}" for name, reason in left.items())
            self.warn(f"search: left out: {first_of(reasons)}")
        return parts, left

    def _in_time(
        self, found: Tuned, seconds: float, without: Collection[str]
    ) -> Mapping[str, tuple[ModuleKey, ...]]:
        """As many of the modules that matter as can be searched for `LEAST_S` each."""
        most = max(int(seconds * self.jobs / LEAST_S), 1)
        while True:
            parts = modules_that_matter(found, most, without)
            most = sum(map(len, parts.values())) - 1
            if most < 1 or self._turns(parts) * LEAST_S <= seconds:
                return parts

    def _turns(self, parts: Mapping[str, Sequence[ModuleKey]]) -> int:
        """How many modules are searched one after the other; targets do not share workers."""
        return sum(math.ceil(len(keys) / self.jobs) for keys in parts.values())

    def _count_unsearched(
        self, found: Tuned, parts: Mapping[str, Sequence[ModuleKey]], without: Collection[str]
    ) -> int:
        """How many modules that matter there is no time for."""
        every = modules_that_matter(found, len(found.scores), without)
        total = sum(map(len, every.values()))
        count = total - sum(map(len, parts.values()))
        if count:
            self.warn(
                f"search: {count} of {total} modules that matter are not searched for want of "
                f"time, of which each takes {LEAST_S:g} s at least: give more --budget and --search"
            )
        return count

    def _seconds(self, found: Tuned) -> float:
        """How long the search itself takes: what is left beside compiling all, or at least half.

        The first compilations of small projects say little, as models are compiled then.
        """
        compilations = max(len(scores.code) for scores in found.scores) + bool(found.plain)
        compilations += TUNED in found.models  # LLVM's own is compiled with it once more
        pass_s = found.spent_s["evaluating"] / compilations
        return max(self.budget_s - _PASSES * pass_s, self.budget_s / 2)

    def _by_model(
        self, corpus: Corpus, names: Iterable[str], measure: Measure, policy: Policy | None
    ) -> dict[str, tuple[float, int]]:
        """The scores and bytes of text of modules under the model, if there is one."""
        if policy is None:
            return {}

        def work(compiler: Compiler, name: str) -> tuple[float, int]:
            module = corpus[name]
            made = compiler.compile_module(
                module,
                measure.options_for(options_of(module)),
                problem=self.problem,
                policy=policy,
                keep_object=measure.keeps_objects,
                task=measure.task,
            )
            return measure.score(made), made.text_size_bytes

        return self._each(names, work)

    def _codes(self, corpus: Corpus, folder: Path, names: Sequence[str]) -> dict[ModuleKey, Code]:
        work = partial(_replayed, corpus, folder)
        return {ModuleKey("", name): code for name, code in self._each(names, work).items()}

    def _each(
        self, names: Iterable[str], work: Callable[[Compiler, str], _Value]
    ) -> dict[str, _Value]:
        make = partial(Compiler, timeout_s=self.timeout_s)
        done = each(names, work, make, jobs=self.jobs, in_order=True)
        return {one.item: one.value for one in done if not one.error}


def _replayed(corpus: Corpus, folder: Path, compiler: Compiler, name: str) -> Code:
    module = corpus[name]
    trace = Trace.load(trace_path(folder, name))
    return Code.of(replay(compiler, trace, module, options_of(module)))


def reward_of_build(corpus: Corpus) -> str:
    """Return what a linker would be left with of a build's modules.

    Functions in sections of their own are there to be dropped and folded.
    """
    has_sections = all(options_of(corpus[name]).function_sections for name in corpus)
    return "linked_text_icf" if has_sections else "linked"


def modules_that_matter(
    found: Tuned, most: int, without: Collection[str] = ()
) -> Mapping[str, tuple[ModuleKey, ...]]:
    """The largest modules that have most of the code, by the target that links them first.

    Args:
        found: what tuning came to.
        most: how many at most.
        without: names of modules that are left out.
    """
    sizes = {
        ModuleKey(scores.package, scores.module): scores.code[found.choice.name].text_bytes
        for scores in found.scores
        if scores.is_complete
    }
    first = {
        key: target
        for target, keys in reversed(list(found.targets.items()))
        for key in keys
        if key in sizes and key.name not in without
    }
    left = _SHARE * sum(sizes[key] for key in first)
    chosen: dict[str, list[ModuleKey]] = {}
    for key in sorted(first, key=sizes.__getitem__, reverse=True)[:most]:
        if left <= 0:
            break
        chosen.setdefault(first[key], []).append(key)
        left -= sizes[key]
    return {target: tuple(keys) for target, keys in chosen.items()}

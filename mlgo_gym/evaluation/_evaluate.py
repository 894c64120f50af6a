"""Policies over packages: every module is compiled plainly and under each policy."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from mlgo_gym.corpus._corpus import OTHER_LANGUAGE, language_of
from mlgo_gym.corpus._packages import ModuleKey, Packages, PackagesLike
from mlgo_gym.errors import InputError, OptionsError
from mlgo_gym.evaluation._oracle import with_oracle
from mlgo_gym.evaluation._scores import BASELINE, ModuleScores, scores_of
from mlgo_gym.llvm._compiler import DEFAULT_TIMEOUT_S
from mlgo_gym.problems._policy import PolicyLike
from mlgo_gym.problems._problem import Problem
from mlgo_gym.rollout._rollout import ModuleReport, rollout
from mlgo_gym.scoring._measures import TextSize, measure_of


@dataclass(frozen=True, slots=True)
class Setting:
    """How an evaluation compiles.

    Attributes:
        problem: what LLVM asks for.
        opt_level: clang's level to compile at; ``None`` takes each module's own.
        jobs: how many workers compile at once; the scores do not depend on it.
        timeout_s: how long LLVM may take for one compilation, in seconds.
        with_text: make objects too where the problem is scored without (register allocation),
            which takes about twice the time.
        traces: a folder with what a search has found, as `search._corpus_search` leaves it.

    Raises:
        OptionsError: there are traces, and they cannot be for this problem.

    >>> from mlgo_gym import InliningForSize
    >>> Setting(InliningForSize(), jobs=2).with_text
    False
    """

    problem: Problem
    opt_level: str | None = None
    jobs: int = 1
    timeout_s: float = DEFAULT_TIMEOUT_S
    with_text: bool = False
    traces: Path | None = None

    def __post_init__(self) -> None:
        if self.traces and not measure_of(self.problem).makes_objects:
            raise OptionsError(f"traces: expected InliningForSize, found {self.problem.name}")


def module_scores(
    corpora: PackagesLike, policies: Mapping[str, PolicyLike], setting: Setting
) -> Generator[ModuleScores]:
    """Compile every module of every package plainly and under each policy.

    A module that LLVM refuses, or crashes or hangs on, has errors; the others go on.

    Args:
        corpora: the modules, of packages or of a corpus.
        policies: by name; each is made anew for each module.
        setting: how it is compiled.

    Yields:
        The scores of each module, as they are finished.

    Raises:
        OptionsError: a policy is called `BASELINE`, there is no such level, or ``jobs`` is not
            above 0.
    """
    if BASELINE in policies:
        raise OptionsError(f"policy: expected a name other than {BASELINE!r}, found it")
    packages = Packages.of(corpora)
    with closing(_compiled(packages, policies, setting)) as reports:
        for parts in reports:
            language = _language(packages, parts[0].key)
            scores, *more = (scores_of(each, language) for each in parts)
            for other in more:
                scores = scores.with_code(other)
            yield with_oracle(scores, setting.traces)


def in_order(scores: Iterable[ModuleScores], corpora: PackagesLike) -> list[ModuleScores]:
    """The scores in the order of the packages and of their modules."""
    places = {key: place for place, key in enumerate(Packages.of(corpora))}
    return sorted(scores, key=lambda each: places[ModuleKey(each.package, each.module)])


def _language(packages: Packages, key: ModuleKey) -> str:
    try:
        return language_of(packages[key])
    except InputError:  # the compilation names what is wrong
        return OTHER_LANGUAGE


def _compiled(
    packages: Packages, policies: Mapping[str, PolicyLike], setting: Setting
) -> Generator[tuple[ModuleReport, ...]]:
    """The reports of each module: of what it is scored by and, if asked for, of its code."""
    run = partial(
        rollout,
        packages,
        policies,
        setting.problem,
        opt_level=setting.opt_level,
        jobs=setting.jobs,
        timeout_s=setting.timeout_s,
    )
    with closing(run(in_order=False)) as reports:
        if not setting.with_text or measure_of(setting.problem).makes_objects:
            yield from ((report,) for report in reports)
            return
        first = {report.key: report for report in reports}
    with closing(run(in_order=False, measure=TextSize)) as objects:
        for report in objects:
            yield first[report.key], report

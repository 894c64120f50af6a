"""The worth of models and policies: every module is compiled plainly and under each."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from mlgo_gym.base import InputError, OptionsError
from mlgo_gym.corpus import OTHER_LANGUAGE, ModuleKey, Packages, PackagesLike, language_of
from mlgo_gym.evaluation._summary import ModuleScores, Scored, scores_of
from mlgo_gym.llvm import DEFAULT_TIMEOUT_S, Jobs, options_of
from mlgo_gym.model import find_model
from mlgo_gym.problems import PolicyLike, Problem
from mlgo_gym.rollout import (
    BASELINE,
    SMALLEST,
    Comparison,
    ModuleReport,
    RecordedPolicy,
    TextSize,
    Trace,
    check_settings,
    made_of_reports,
    measure_of,
    rollout,
    trace_paths,
)
from mlgo_gym.runners import model_policies, problem_of_models, settings_of_models

_SEARCH: Final = "search"


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
        keep_smaller: add the best of each module, or of each function if functions are scored by
            themselves, among all policies and LLVM's own.

    >>> from mlgo_gym import InliningForSize
    >>> Setting(InliningForSize(), jobs=2).with_text
    False
    """

    problem: Problem
    opt_level: str | None = None
    jobs: Jobs = 1
    timeout_s: float = DEFAULT_TIMEOUT_S
    with_text: bool = False
    keep_smaller: bool = False

    def rollout(
        self,
        corpora: PackagesLike,
        policies: Mapping[str, PolicyLike],
        *,
        in_order: bool = True,
        **how: Any,
    ) -> Generator[ModuleReport]:
        """`mlgo_gym.rollout.rollout` with this setting, and with further keywords of it."""
        return rollout(
            corpora,
            policies,
            self.problem,
            jobs=self.jobs,
            timeout_s=self.timeout_s,
            in_order=in_order,
            **({"opt_level": self.opt_level} | how),
        )


Track = Callable[[Iterable[ModuleScores], int], Iterable[ModuleScores]]
"""Passes scores through, of which there will be so many, and shows that they come."""


def evaluate(
    models: Path | str | Sequence[Path | str],
    corpora: PackagesLike,
    *,
    policies: Mapping[str, PolicyLike] = MappingProxyType({}),
    mode: str = "release",
    trusted: bool = False,
    seed: int = 0,
    track: Track = lambda scores, _: scores,
    problem: Problem | None = None,
    opt_level: str | None = None,
    jobs: Jobs = 1,
    timeout_s: float = DEFAULT_TIMEOUT_S,
    with_text: bool = False,
    traces: Path | None = None,
    keep_smaller: bool = False,
) -> Scored:
    """Compile packages plainly and under each model and policy, and add up.

    Args:
        models: model directories, frozen models or names of models that ship; there may be none.
        corpora: folders of corpora, packages, corpora by the names of theirs, or one corpus.
        policies: more policies, by name.
        mode: how models run (`mlgo_gym.runners.runner_factory`).
        trusted: run the models' files in this process, whoever made them.
        seed: of the bootstrap.
        track: shows how far it is.
        problem: what LLVM asks for; ``None`` takes the first model's.
        opt_level: clang's level to compile at; ``None`` takes each module's own.
        jobs: how many workers compile at once; the scores do not depend on it.
        timeout_s: how long LLVM may take for one compilation, in seconds.
        with_text: make objects too where the problem is scored without.
        traces: a folder with what a search has found, which is one more policy: ``search``.
        keep_smaller: add the best of each module or function among all policies.

    Raises:
        ModelError: a model cannot be used, or was made for another problem.
        OptionsError: a setting has a value that it cannot have, or a model is machine code of
            somebody else's and not trusted.
        CorpusError: a folder is no corpus.
        TraceError: as from `with_searched`.

    >>> from mlgo_gym import SAMPLE_CORPUS, Corpus
    >>> few = Corpus.load(SAMPLE_CORPUS).only(["digest.c", "scene.cpp"])
    >>> print(evaluate("inlining-for-size", {"sample": few}))
    inlining-for-size: linked text -5.25 %, 2 modules, 0 worse
    """
    given = [models] if isinstance(models, Path | str) else list(models)
    paths = [find_model(str(each)) for each in given]
    packages = Packages.of(corpora)
    if problem is None:
        kind = problem_of_models(paths)
        problem = kind(**settings_of_models(paths, kind))
    setting = Setting(problem, opt_level, jobs, timeout_s, with_text, keep_smaller)
    with model_policies(paths, mode, setting.problem, policies, trusted=trusted) as found:
        answering = with_searched({**found, **policies}, traces, packages, setting)
        with closing(module_scores(packages, answering, setting)) as scores:
            known = list(track(scores, len(packages)))
    added = (SMALLEST,) if setting.keep_smaller else ()
    return Scored(in_order(known, packages), (*answering, *added), seed)


def with_searched(
    policies: Mapping[str, PolicyLike], folder: Path | None, packages: Packages, setting: Setting
) -> dict[str, PolicyLike]:
    """Add what a search has found, if there is a folder of it, as policy ``search``.

    Modules are known by their hashes. Those without a trace are compiled as by LLVM itself.

    Raises:
        OptionsError: there is no trace of any of the modules, a policy of that name, or another
            problem than the inliner's.
        TraceError: a trace was recorded with another setting, or by another LLVM.
    """
    if folder is None:
        return dict(policies)
    if _SEARCH in policies:
        raise OptionsError(f"policy: expected a name other than {_SEARCH!r}, found it")
    if not measure_of(setting.problem).makes_objects:
        raise OptionsError(f"traces: expected InliningForSize, found {setting.problem.name}")
    keys: dict[str, ModuleKey] = {}
    for key in packages:
        with suppress(InputError):  # the compilation names what is wrong
            keys[packages[key].sha256] = key
    traces = []
    for trace in map(Trace.load, trace_paths(folder)):
        if trace.module_sha256 in keys:
            module = packages[keys[trace.module_sha256]]
            options = options_of(module, setting.opt_level)
            check_settings(trace, setting.problem, options)
            traces.append(trace)
    if not traces:
        raise OptionsError(f"traces {str(folder)!r}: expected one of these modules, found none")
    return {**policies, _SEARCH: RecordedPolicy(traces, setting.problem.policy())}


def module_scores(
    corpora: PackagesLike, policies: Mapping[str, PolicyLike], setting: Setting
) -> Generator[ModuleScores]:
    """Compile every module plainly and under each policy; with errors, as they are finished."""
    for name in (BASELINE, SMALLEST):
        if name in policies:
            raise OptionsError(f"policy: expected a name other than {name!r}, found it")
    packages = Packages.of(corpora)
    with closing(_compiled(packages, policies, setting)) as found:
        for scores in found:
            language = scores.language or _language(packages, scores.key)
            yield replace(scores, language=language)


def in_order(scores: Iterable[ModuleScores], corpora: PackagesLike) -> list[ModuleScores]:
    """The scores in the order of the packages and of their modules."""
    places = {key: place for place, key in enumerate(Packages.of(corpora))}
    return sorted(scores, key=lambda each: places[each.key])


def _language(packages: Packages, key: ModuleKey) -> str:
    try:
        return language_of(packages[key])
    except InputError:  # the compilation names what is wrong
        return OTHER_LANGUAGE


def _compiled(
    packages: Packages, policies: Mapping[str, PolicyLike], setting: Setting
) -> Generator[ModuleScores]:
    """The scores of each module and, if asked for, its code, which is made by itself then."""
    how = Comparison(setting.opt_level, keep_smaller=setting.keep_smaller)
    by = partial(
        made_of_reports,
        packages,
        policies,
        setting.problem,
        scores_of,
        jobs=setting.jobs,
        timeout_s=setting.timeout_s,
        in_order=False,
    )
    with closing(by(how)) as found:
        if not setting.with_text or measure_of(setting.problem).makes_objects:
            yield from found
            return
        first = {each.key: each for each in found}
    with closing(by(replace(how, measure=TextSize()))) as found:
        yield from (first[each.key].with_code(each) for each in found)

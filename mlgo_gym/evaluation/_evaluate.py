"""The worth of models and policies: every module is compiled plainly and under each.

Of packages there is also what a linker leaves. Modules are then compiled with ``-ffunction-sections
-fdata-sections -faddrsig``, since a linker drops and folds sections, not functions. The sizes are
those of `mlgo_gym.rollout.linked_sizes`.

The cost of a policy in time is that of compiling with it against LLVM's own heuristic. The two
alternate, module by module, in one worker, so that whatever else the machine does meets both alike.
A time is what a caller waits for: the runner is made, LLVM compiles and asks, and the object comes
back.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from pathlib import Path
from statistics import median
from time import perf_counter
from types import MappingProxyType
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mlgo_gym.base import InputError, MlgoGymError, OptionsError
from mlgo_gym.corpus import OTHER_LANGUAGE, ModuleKey, Packages, PackagesLike, language_of
from mlgo_gym.evaluation._summary import (
    LEVEL,
    ModuleScores,
    RelativeChange,
    Scored,
    draw,
    interval,
    scores_of,
)
from mlgo_gym.llvm import DEFAULT_TIMEOUT_S, CompilationResult, Compiler, Jobs, each, options_of
from mlgo_gym.model import find_model
from mlgo_gym.problems import PolicyLike, Problem
from mlgo_gym.rollout import (
    BASELINE,
    SMALLEST,
    Comparison,
    Failure,
    KeptText,
    LinkedSizes,
    ModuleReport,
    RecordedPolicy,
    SectionsUnit,
    TextSize,
    Trace,
    Unit,
    check_settings,
    linked_sizes,
    made_of_reports,
    measure_of,
    rollout,
    trace_paths,
    without_frames,
)
from mlgo_gym.runners import model_policies, problem_of_models, settings_of_models

_SEARCH: Final = "search"
Track = Callable[[Iterable[ModuleScores], int], Iterable[ModuleScores]]
"""Passes scores through, of which there will be so many, and shows that they come."""


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
    if seed < 0:
        raise OptionsError(f"seed: expected a whole number from 0 on, found {seed}")
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


WAYS: Final[Mapping[str, str]] = {"text": "linked", "gc": "gc", "icf": "icf"}
"""The sizes of `LinkedSizes`, and what tables call them."""


class _Objects(KeptText):
    unit: type[Unit] = SectionsUnit


@dataclass(frozen=True, slots=True)
class PackageLink:
    """A package as a linker leaves it.

    Attributes:
        package: its name.
        sizes: bytes of code by policy, `BASELINE` among them; empty where it could not be linked.
        errors: why modules are left out under every policy, or why there are no sizes.
    """

    package: str
    sizes: Mapping[str, LinkedSizes]
    errors: tuple[Failure, ...] = ()


def objects_of_packages(
    corpora: PackagesLike, policies: Mapping[str, PolicyLike], setting: Setting
) -> Generator[ModuleReport]:
    """Compile every module with sections, plainly and under each policy, package by package."""
    kept = setting.keep_smaller
    return setting.rollout(corpora, policies, measure=_Objects(), keep_smaller=kept)


def link_packages(reports: Iterable[ModuleReport]) -> Generator[PackageLink]:
    """Link each package as soon as all of its modules are there; one is in memory at a time."""
    for package, given in groupby(reports, lambda each: each.package):
        known = list(given)
        errors = tuple(error for each in known for error in each.failures)
        try:
            sizes = _linked([each for each in known if each.is_complete])
        except InputError as error:
            sizes, errors = {}, (*errors, Failure(without_frames(error), f"package {package}"))
        yield PackageLink(package, sizes, errors)


def _linked(reports: Sequence[ModuleReport]) -> dict[str, LinkedSizes]:
    objects: dict[str, list[bytes]] = {}
    for report in reports:
        for name, result in report.results.items():
            if isinstance(result, CompilationResult):
                objects.setdefault(name, []).append(result.object_bytes or b"")
    return {name: linked_sizes(files) for name, files in objects.items()}


def link_change(
    links: Sequence[PackageLink], policy: str, way: str, seed: int = 0
) -> RelativeChange:
    """The geometric mean of packages' ratios to LLVM's own, less 1, and its bootstrap interval.

    Packages are drawn with replacement; of one package alone there is no interval. Where none could
    be linked, the change is not a number.
    """
    pairs = [
        (getattr(each.sizes[policy], way), getattr(each.sizes[BASELINE], way))
        for each in links
        if policy in each.sizes
    ]
    logs = np.array([math.log(after / before) for after, before in pairs if after and before])
    if not len(logs):
        return RelativeChange(math.nan, None)
    value = math.expm1(float(logs.mean()))
    if len(logs) == 1:
        return RelativeChange(value, None)
    low, high = np.percentile(draw(range(len(logs)), seed) @ logs / len(logs), LEVEL)
    return RelativeChange(value, (math.expm1(low), math.expm1(high)))


@dataclass(frozen=True, slots=True)
class ModuleTimes:
    """A module's median seconds under `BASELINE` and each policy, or why it could not be timed."""

    package: str
    module: str
    seconds: Mapping[str, float]
    error: MlgoGymError | None = None


@dataclass(frozen=True, slots=True)
class TimeChange:
    """Changes of the total and of the modules' median, 0.1 is 10 % more; the sum of the times.

    The median is ``None`` where no module could be timed.
    """

    total: RelativeChange
    median: float | None
    seconds: float


def measure_times(
    corpora: PackagesLike,
    policies: Mapping[str, PolicyLike],
    setting: Setting,
    repeats: int,
) -> Generator[ModuleTimes]:
    """Compile every module several times, with one worker, whatever the setting's ``jobs``."""
    packages = Packages.of(corpora)

    def timed(compiler: Compiler, key: ModuleKey) -> dict[str, float]:
        module = packages[key]
        options = options_of(module, setting.opt_level)
        unit = TextSize().unit(compiler, module, options, setting.problem)
        unit.baseline()  # what is done once, such as verifying the module, is not timed
        seconds: dict[str, list[float]] = {name: [] for name in (BASELINE, *policies)}
        for _ in range(repeats):
            start = perf_counter()
            unit.baseline()
            seconds[BASELINE].append(perf_counter() - start)
            for name, policy in policies.items():
                start = perf_counter()
                unit.attempt(policy)
                seconds[name].append(perf_counter() - start)
        return {name: median(taken) for name, taken in seconds.items()}

    with closing(each(packages, timed, partial(Compiler, timeout_s=setting.timeout_s))) as found:
        for done in found:
            error = done.error and without_frames(done.error)
            yield ModuleTimes(*done.item, {} if error else done.value, error)


def time_changes(times: list[ModuleTimes], policy: str, seed: int = 0) -> TimeChange:
    """How a policy changes the time of those modules that could be timed, package by package.

    The interval is over modules, so of one module there is none.
    """
    known = [each for each in times if not each.error]
    values, baselines = (_column(known, name) for name in (policy, BASELINE))
    weights = draw([each.package for each in known], seed)
    ends = interval(weights, values, baselines) if len(known) > 1 else None
    total = values.sum() / baselines.sum() - 1 if known else math.nan
    return TimeChange(
        RelativeChange(float(total), (ends[0] - 1, ends[1] - 1) if ends else None),
        float(np.median(values / baselines)) - 1 if known else None,
        float(values.sum()),
    )


def _column(times: list[ModuleTimes], name: str) -> NDArray[Any]:
    return np.array([each.seconds[name] for each in times], float)

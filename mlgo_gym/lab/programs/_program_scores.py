"""Scores of programs that run: each is linked and measured under every policy.

A change is the geometric mean of the programs' ratios to what LLVM's own heuristics make, less 1,
with a bootstrap interval over packages and their programs, as of modules (`evaluation`). Programs
that are equal are measured once.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from statistics import median
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

import numpy as np

from corpus_tools.workloads import Workload
from mlgo_gym.base import CompilationError, InputError, MlgoGymError
from mlgo_gym.corpus import Corpus
from mlgo_gym.evaluation import (
    LEVEL,
    NOTE,
    RESAMPLES,
    WIDTH,
    RelativeChange,
    Setting,
    draw,
    interval,
    new_figure,
    plot_label,
    reach,
)
from mlgo_gym.lab.programs._meters import Meter, Reading
from mlgo_gym.lab.programs._program import Program, Programs, corpora_with_workloads
from mlgo_gym.llvm import CompilationResult
from mlgo_gym.problems import PolicyLike, Problem
from mlgo_gym.rollout import BASELINE, Attempt, KeptText, without_frames

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LAYOUTS: Final = 16
_FEWEST_LAYOUTS: Final = 3
"""In how many layouts a program is measured by seconds, unless told otherwise."""

Together = Mapping[str, Mapping[Problem, PolicyLike]]
"""By name: what answers LLVM in one compilation, by problem."""


@dataclass(frozen=True, slots=True)
class ProgramScores:
    """A workload's program under `BASELINE` and each policy.

    Attributes:
        readings: by policy, then by meter.
        error: why it could not be measured.
    """

    package: str
    workload: str
    readings: Mapping[str, Mapping[str, Reading]] = field(default_factory=dict, repr=False)
    error: MlgoGymError | None = None

    @property
    def label(self) -> str:
        """The package and the workload."""
        return "/".join(filter(None, (self.package, self.workload)))

    def ratio(self, policy: str, meter: str) -> float:
        """Return the ratio of a policy's program to the baseline's."""
        value, baseline = (self.readings[each][meter].value for each in (policy, BASELINE))
        return value / baseline if baseline else math.inf if value else 1.0


def measured_programs(
    corpora: Mapping[str, Corpus],
    policies: Mapping[str, PolicyLike],
    setting: Setting,
    meters: Sequence[Meter],
    names: Sequence[str] = (),
    *,
    together: Together = MappingProxyType({}),
    layouts: int = LAYOUTS,
) -> Generator[ProgramScores]:
    """Measure every workload of corpora plainly and under each policy, as they are finished.

    Args:
        corpora: by the names of their packages; those without workloads are passed over, unless
            workloads are named.
        policies: by name.
        setting: how modules are compiled; meters that are exact run as many programs at once.
        meters: what programs are measured by.
        names: which workloads; all, where none are named.
        together: compared as well, by name: policies that answer in the same compilations, such as
            those of an inliner and of a register allocator.
        layouts: how often a program is linked for a meter that depends on its layout.

    Raises:
        WorkloadError: a corpus has no such workload, or one cannot be used.
        EnvironmentSetupError: a tool is missing.
    """
    if not any(each.depends_on_layout for each in meters):
        layouts = 1
    jobs = setting.jobs if isinstance(setting.jobs, int) else 1
    for package, corpus in corpora_with_workloads(corpora).items():
        with Programs(
            corpus,
            names,
            opt_level=setting.opt_level,
            jobs=setting.jobs,
            timeout_s=setting.timeout_s,
        ) as programs:
            try:
                results = _compiled(corpus, programs, policies, setting, together)
            except (CompilationError, InputError) as error:
                failed = without_frames(error)
                for name in programs.workloads:
                    yield ProgramScores(package, name, error=failed)
                continue
            for workload in programs.workloads.values():
                links = _linked(programs, workload, results, layouts)
                yield _scores(package, workload, links, meters, jobs)


def _scores(
    package: str,
    workload: Workload,
    links: AbstractContextManager[Mapping[str, Program]],
    meters: Sequence[Meter],
    jobs: int,
) -> ProgramScores:
    try:
        with links as linked:
            return ProgramScores(package, workload.name, _read(workload, linked, meters, jobs))
    except (CompilationError, InputError) as error:
        return ProgramScores(package, workload.name, error=without_frames(error))


@contextmanager
def linked_programs(
    corpus: Corpus, policies: Mapping[str, PolicyLike], setting: Setting, workload: str
) -> Iterator[tuple[Workload, dict[str, Program]]]:
    """A workload, and its programs by policy, `BASELINE` first; they go at the end."""
    with Programs(corpus, [workload], opt_level=setting.opt_level) as programs:
        results = _compiled(corpus, programs, policies, setting)
        chosen = programs.workloads[workload]
        with _linked(programs, chosen, results) as linked:
            yield chosen, linked


def program_change(
    scores: Sequence[ProgramScores], policy: str, meter: str, seed: int = 0
) -> RelativeChange:
    """How a policy changes what a meter says: geometric mean over programs, and its interval.

    It is not a number where no program was measured.
    """
    known = [each for each in scores if not each.error]
    logs = np.log([each.ratio(policy, meter) for each in known])
    ones = np.ones(len(known))
    weights = draw([each.package for each in known], seed)
    ends = interval(weights, logs, ones) if len(known) > 1 else None
    value = math.expm1(logs.mean()) if known else math.nan
    return RelativeChange(value, (math.expm1(ends[0]), math.expm1(ends[1])) if ends else None)


def paired_change(
    samples: Sequence[float], baselines: Sequence[float], seed: int = 0
) -> RelativeChange:
    """The change of a median of seconds, with a paired bootstrap interval: rounds are drawn.

    >>> paired_change([2.2, 2.2, 2.2], [2.0, 2.0, 2.0])
    RelativeChange(value=0.10000000000000009, interval=(0.10000000000000009, 0.10000000000000009))
    """
    pairs = np.array([samples, baselines])
    drawn = np.random.default_rng(seed).integers(len(samples), size=(RESAMPLES, len(samples)))
    above, below = np.median(pairs[:, drawn], axis=2)
    low, high = np.percentile(above / below, LEVEL)
    middle = np.median(pairs, axis=1)
    return RelativeChange(float(middle[0] / middle[1]) - 1, (float(low) - 1, float(high) - 1))


def layouts_change(
    samples: Sequence[float], baselines: Sequence[float], seed: int = 0
) -> RelativeChange:
    """The change of a geometric mean over layouts, with a bootstrap-t interval over layouts.

    Layouts of one program have nothing to do with those of the other, so both are drawn. Of fewer
    than three there is no interval: in a quarter of the samples of two, nothing varies.

    >>> round(layouts_change([2.2, 2.2, 2.4], [2.0, 2.2, 2.0]).value, 3)
    0.097
    """
    random = np.random.default_rng(seed)
    mean, variance = 0.0, 0.0
    means, variances = np.zeros(RESAMPLES), np.zeros(RESAMPLES)
    for sign, each in ((1, samples), (-1, baselines)):
        logs = np.log(each)
        drawn = logs[random.integers(len(logs), size=(RESAMPLES, len(logs)))]
        mean += sign * float(logs.mean())
        variance += float(logs.var(ddof=1)) / len(logs)
        means += sign * drawn.mean(axis=1)
        variances += drawn.var(axis=1, ddof=1) / len(logs)
    if min(len(samples), len(baselines)) < _FEWEST_LAYOUTS:
        return RelativeChange(math.expm1(mean), None)
    errors = (means - mean) / np.sqrt(np.maximum(variances, np.finfo(float).tiny))
    low, high = np.percentile(errors, LEVEL)
    ends = (mean - each * math.sqrt(variance) for each in (float(high), float(low)))
    first, last = map(math.expm1, ends)
    return RelativeChange(math.expm1(mean), (first, last))


def spread(scores: Sequence[ProgramScores]) -> float | None:
    """Return the standard deviation of plain programs' seconds over layouts, the mean of all."""
    found = [
        float(np.log(each.samples).std(ddof=1)) for each in _seconds(scores) if each.layouts > 1
    ]
    return sum(found) / len(found) if found else None


def noise(scores: Sequence[ProgramScores]) -> float | None:
    """Return the share by which equal programs' seconds differ, the mean over programs."""
    found = [
        abs(median(each.again) / each.value - 1) for each in _seconds(scores) if each.layouts == 1
    ]
    return sum(found) / len(found) if found else None


def _seconds(scores: Sequence[ProgramScores]) -> list[Reading]:
    """The readings of plain programs' seconds, if there are any."""
    readings = (each.readings[BASELINE].get("seconds") for each in scores if not each.error)
    return [each for each in readings if each]


def _compiled(
    corpus: Corpus,
    programs: Programs,
    policies: Mapping[str, PolicyLike],
    setting: Setting,
    together: Together = MappingProxyType({}),
) -> dict[str, dict[str, CompilationResult]]:
    """The objects of all modules that are linked, kept, by policy and module."""
    names = [
        name for name in corpus if any(name in programs.modules(w) for w in programs.workloads)
    ]
    found: dict[str, dict[str, CompilationResult]] = {name: {} for name in (BASELINE, *policies)}
    reports = setting.rollout(
        {"": corpus.only(names)}, policies, in_order=False, measure=KeptText()
    )
    with closing(reports):
        for report in reports:
            for failure in report.failures:
                raise InputError(str(failure)) from failure.error
            for attempt in (Attempt(BASELINE, report.baseline), *report.attempts):
                if isinstance(attempt.result, CompilationResult):
                    found[attempt.policy][report.module] = programs.keep(attempt.result)
    return found | {name: programs.compiled_all(answers) for name, answers in together.items()}


@contextmanager
def _linked(
    programs: Programs,
    workload: Workload,
    results: Mapping[str, Mapping[str, CompilationResult]],
    links: int = 1,
) -> Iterator[dict[str, Program]]:
    with ExitStack() as stack:
        yield {
            name: stack.enter_context(programs.linked(workload, objects, links=links))
            for name, objects in results.items()
        }


def _read(
    workload: Workload, linked: Mapping[str, Program], meters: Sequence[Meter], jobs: int
) -> dict[str, dict[str, Reading]]:
    different = list(dict.fromkeys(linked.values()))
    readings = {each.name: each.read(workload, different, jobs=jobs) for each in meters}
    return {
        name: {meter: found[different.index(program)] for meter, found in readings.items()}
        for name, program in linked.items()
    }


def programs_plot(
    scores: Sequence[ProgramScores], policies: Sequence[str], meters: Sequence[str]
) -> Figure:
    """Each policy's programs, size against what else was measured; crosses are the means."""
    known = [each for each in scores if not each.error]
    base = "size" if "size" in meters else meters[0]
    others = [meter for meter in meters if meter != base]
    figure = new_figure(WIDTH, 4.5 * len(others))
    for place, meter in enumerate(others):
        axes = figure.add_subplot(len(others), 1, place + 1)
        for number, policy in enumerate(policies):
            across, up = (
                [100 * (each.ratio(policy, name) - 1) for each in known] for name in (base, meter)
            )
            axes.scatter(across, up, s=16, alpha=0.6, color=f"C{number}", label=plot_label(policy))
            size, speed = (program_change(known, policy, name) for name in (base, meter))
            axes.errorbar(
                [100 * size.value],
                [100 * speed.value],
                xerr=np.transpose([reach(size)]),
                yerr=np.transpose([reach(speed)]),
                fmt="x",
                color=f"C{number}",
                capsize=3,
            )
        axes.axhline(0, color="black", linewidth=0.8)
        axes.axvline(0, color="black", linewidth=0.8)
        axes.grid(alpha=0.3)
        axes.set_xlabel(f"{plot_label(base)}: {NOTE}")
        axes.set_ylabel(f"{plot_label(meter)}, percent (below 0 is better)")
        axes.legend()
    figure.suptitle(f"programs: {len(known)}; means with 95 % bootstrap intervals")
    return figure

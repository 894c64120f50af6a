"""Scores of programs that run: each is linked and measured under every policy.

A change is the geometric mean of the programs' ratios to what LLVM's own heuristics make, less 1,
with a bootstrap interval over packages and their programs, as of modules (`_summary`). Programs
that are equal are measured once.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from statistics import median

import numpy as np

from corpus_tools.workloads import Workload
from mlgo_gym.base import CompilationError, InputError, MlgoGymError
from mlgo_gym.corpus import Corpus
from mlgo_gym.evaluation import LEVEL, RESAMPLES, RelativeChange, Setting, draw, interval
from mlgo_gym.lab.programs._finding import corpora_with_workloads
from mlgo_gym.lab.programs._meters import Meter, Reading
from mlgo_gym.lab.programs._program import Program, Programs
from mlgo_gym.llvm import CompilationResult
from mlgo_gym.problems import PolicyLike
from mlgo_gym.rollout import BASELINE, Attempt, KeptText, without_frames


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
) -> Generator[ProgramScores]:
    """Measure every workload of corpora plainly and under each policy, as they are finished.

    Args:
        corpora: by the names of their packages; those without workloads are passed over, unless
            workloads are named.
        policies: by name.
        setting: how modules are compiled; meters that are exact run as many programs at once.
        meters: what programs are measured by.
        names: which workloads; all, where none are named.

    Raises:
        WorkloadError: a corpus has no such workload, or one cannot be used.
        EnvironmentSetupError: a tool is missing.
    """
    jobs = setting.jobs if isinstance(setting.jobs, int) else 1
    for package, corpus in corpora_with_workloads(corpora).items():
        with Programs(corpus, names, opt_level=setting.opt_level) as programs:
            try:
                results = _compiled(corpus, programs, policies, setting)
            except (CompilationError, InputError) as error:
                for name in programs.workloads:
                    yield ProgramScores(package, name, error=without_frames(error))
                continue
            for name, workload in programs.workloads.items():
                try:
                    with _linked(programs, workload, results) as linked:
                        readings = _read(workload, linked, meters, jobs)
                    yield ProgramScores(package, name, readings)
                except (CompilationError, InputError) as error:
                    yield ProgramScores(package, name, error=without_frames(error))


@contextmanager
def linked_programs(
    corpus: Corpus, policies: Mapping[str, PolicyLike], setting: Setting, workload: str
) -> Iterator[tuple[Workload, dict[str, Program]]]:
    """A workload, and its programs by policy, `BASELINE` first; they go at the end.

    Raises:
        WorkloadError: there is no such workload, or it cannot be linked.
        InputError: a module cannot be compiled.
    """
    with Programs(corpus, [workload], opt_level=setting.opt_level) as programs:
        results = _compiled(corpus, programs, policies, setting)
        chosen = programs.workloads[workload]
        with _linked(programs, chosen, results) as linked:
            yield chosen, linked


def program_change(
    scores: Sequence[ProgramScores], policy: str, meter: str, seed: int = 0
) -> RelativeChange:
    """How a policy changes what a meter says: geometric mean over programs, and its interval."""
    known = [each for each in scores if not each.error]
    logs = np.log([each.ratio(policy, meter) for each in known])
    ones = np.ones(len(known))
    weights = draw([each.package for each in known], seed)
    ends = interval(weights, logs, ones) if len(known) > 1 else None
    value = math.expm1(logs.mean()) if known else 0.0
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


def noise(scores: Sequence[ProgramScores]) -> float | None:
    """Return the share by which equal programs' seconds differ, the mean over programs."""
    readings = [each.readings[BASELINE].get("seconds") for each in scores if not each.error]
    found = [abs(median(each.again) / each.value - 1) for each in readings if each]
    return sum(found) / len(found) if found else None


def _compiled(
    corpus: Corpus, programs: Programs, policies: Mapping[str, PolicyLike], setting: Setting
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
    return found


@contextmanager
def _linked(
    programs: Programs,
    workload: Workload,
    results: Mapping[str, Mapping[str, CompilationResult]],
) -> Iterator[dict[str, Program]]:
    with ExitStack() as stack:
        yield {
            name: stack.enter_context(programs.linked(workload, objects))
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

"""The cost of a policy in time: compiling with it against LLVM's own heuristic.

The two alternate, module by module, in one worker, so that whatever else the machine does meets
both alike. A time is what a caller waits for: the runner is made, LLVM compiles and asks, and the
object comes back.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Mapping
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlgo_gym.base import MlgoGymError
from mlgo_gym.corpus import ModuleKey, Packages, PackagesLike
from mlgo_gym.evaluation._evaluate import Setting
from mlgo_gym.evaluation._summary import RelativeChange, draw, interval
from mlgo_gym.llvm import Compiler, each, options_of
from mlgo_gym.problems import PolicyLike
from mlgo_gym.rollout import BASELINE, TextSize, without_frames


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

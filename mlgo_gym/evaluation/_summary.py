"""Scores of modules, their sums and means with bootstrap intervals, and the modules that got worse.

Every statistic is a ratio of two sums over modules, less 1, or the exponential of one, less 1, or
the geometric mean of packages' ratios, less 1; a negative change is an improvement. All sums are
over the modules that LLVM compiled under every policy.

The intervals say what a policy does to other programs of this kind. Modules of one package resemble
each other, so packages are drawn first, with replacement, and then for each of them as many of its
modules as it has, with replacement (the two-stage bootstrap of Davison and Hinkley, "Bootstrap
Methods and their Application", 1997, section 3.8). With one package, only modules are drawn.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import groupby
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mlgo_gym.corpus import ModuleKey
from mlgo_gym.llvm import CompilationResult
from mlgo_gym.rollout import (
    BASELINE,
    Code,
    Failure,
    GeometricMean,
    ModuleReport,
    TextSize,
    geometric_mean_ratio,
    linked_text_shares,
)

RESAMPLES: Final = 2000
LEVEL: Final = (2.5, 97.5)
WORSE_RATIO: Final = 1.01
WORSE_BYTES: Final = 64


@dataclass(frozen=True, slots=True)
class ModuleScores:
    """One module under LLVM's own heuristic, which is called `BASELINE`, and under each policy.

    Costs are of register allocation, functions those that ask, by policy. A module with errors is
    left out of all sums.
    """

    package: str
    module: str
    language: str
    decisions: Mapping[str, int] = field(default_factory=dict)
    costs: Mapping[str, float] = field(default_factory=dict)
    functions: Mapping[str, GeometricMean] = field(default_factory=dict)
    code: Mapping[str, Code] = field(default_factory=dict, repr=False)
    settings: Mapping[str, Any] = field(default_factory=dict, repr=False)
    llvm_version: str = ""
    module_sha256: str = ""
    errors: tuple[Failure, ...] = ()
    not_honoured: tuple[str, ...] = ()

    @property
    def key(self) -> ModuleKey:
        """The package and the module."""
        return ModuleKey(self.package, self.module)

    @property
    def is_complete(self) -> bool:
        return not self.errors

    def with_code(self, other: ModuleScores) -> ModuleScores:
        """These scores, with the code of another evaluation of the same module."""
        known = set(map(str, self.errors))
        errors = *self.errors, *(each for each in other.errors if str(each) not in known)
        return replace(self, code=other.code, errors=errors)


def scores_of(report: ModuleReport) -> ModuleScores:
    """Return the scores of a report."""
    results = report.results
    policies = {name: result for name, result in results.items() if name != BASELINE}
    measure = report.measure
    scored = {} if type(measure) is TextSize else results
    parts = {name: measure.parts(result) for name, result in scored.items()}
    first = next(iter(policies.values()), None)
    # LLVM's own result, which the best may be, is not of those that ask alone.
    asking = next((each for name, each in parts.items() if name != BASELINE), {})
    return ModuleScores(
        package=report.package,
        module=report.module,
        language=report.language,
        decisions={name: result.decisions for name, result in policies.items()},
        costs={name: measure.score(result) for name, result in scored.items()},
        functions={
            name: geometric_mean_ratio({part: each[part] for part in asking}, parts[BASELINE])
            for name, each in parts.items()
            if name != BASELINE
        },
        code={
            name: Code.of(result)
            for name, result in results.items()
            if isinstance(result, CompilationResult)
        },
        settings=first.settings if first else {},
        llvm_version=report.baseline.llvm_version if report.baseline else "",
        module_sha256=report.baseline.module_sha256 if report.baseline else "",
        errors=report.failures,
        not_honoured=report.not_honoured,
    )


@dataclass(frozen=True, slots=True)
class RelativeChange:
    """A policy's change as a share of LLVM's, -0.01 is 1 % less; a 95 % bootstrap interval.

    The value is not a number where nothing was measured.
    """

    value: float
    interval: tuple[float, float] | None

    def to_json(self) -> dict[str, Any]:
        """Return both, ``None`` for what is not known."""
        value = None if math.isnan(self.value) else self.value
        return {"change": value, "interval": self.interval and list(self.interval)}


@dataclass(frozen=True, slots=True)
class Worse:
    """A module that a policy made worse than LLVM's own heuristic makes it."""

    scores: ModuleScores
    baseline: float
    value: float


@dataclass(frozen=True, slots=True)
class Statistic:
    """A number to compare policies by: a geometric mean of ratios, or a ratio of totals.

    Means are of modules or of functions; ``of_packages`` are those where each package counts the
    same, which are there where packages are several.
    """

    key: str
    title: str
    is_mean: bool
    is_minor: bool = False
    of_packages: bool = False


STATISTICS: Final = (
    Statistic("score_mean", "score, mean", is_mean=True),
    Statistic("score", "score, total", is_mean=False),
    Statistic("text", "text", is_mean=False),
    Statistic("linked_text", "linked text", is_mean=False),
    Statistic(
        "linked_text_package_mean", "linked text, mean of packages", is_mean=True, of_packages=True
    ),
    Statistic("text_mean", "text, mean", is_mean=True, is_minor=True),
    Statistic("score_module_mean", "score, mean of modules", is_mean=True, is_minor=True),
)
"""All there are. Means are geometric; ``score_mean`` is over the functions that ask."""


class Scored:
    """Scores of modules as arrays, one row for each module that is complete.

    Args:
        scores: of modules, package by package.
        policies: the policies' names.
        seed: of the bootstrap: the same gives the same intervals.
        resamples: how many samples the intervals are from.

    Attributes:
        scores: of all modules, those that failed too.
        modules: the complete ones, in their order.

    >>> print(Scored([], ["model"]))
    no module was compiled
    """

    def __init__(
        self,
        scores: Sequence[ModuleScores],
        policies: Sequence[str],
        seed: int = 0,
        resamples: int = RESAMPLES,
    ) -> None:
        self.scores: Final = tuple(scores)
        self.modules: Final = tuple(each for each in scores if each.is_complete)
        self.policies: Final = tuple(policies)
        self._seed = seed
        self._resamples = resamples

    def __str__(self) -> str:
        if not self.modules:
            return "no module was compiled"
        statistic, count = self.main_statistic, len(self.modules)
        return "\n".join(
            f"{each}: {statistic.title} {100 * self.change(statistic, each).value:+.2f} %, "
            f"{count} modules, {len(self.worse(each))} worse"
            for each in self.policies
        )

    def only(self, is_chosen: Callable[[ModuleScores], bool]) -> Scored:
        """Some of the modules. Their linked text is their share of their whole packages'."""
        kept = np.array([is_chosen(each) for each in self.modules], bool)
        chosen = Scored(
            [each for each in self.modules if is_chosen(each)],
            self.policies,
            self._seed,
            self._resamples,
        )
        chosen.linked_text = {name: shares[kept] for name, shares in self.linked_text.items()}
        return chosen

    def of_language(self, name: str) -> Scored:
        """The modules of a language."""
        return self.only(lambda each: each.language == name)

    def of_package(self, name: str) -> Scored:
        """The modules of a package."""
        return self.only(lambda each: each.package == name)

    @property
    def languages(self) -> list[str]:
        """The languages of the modules."""
        return sorted({each.language for each in self.modules})

    @property
    def packages(self) -> list[str]:
        """The packages, in their order."""
        return list(dict.fromkeys(each.package for each in self.modules))

    @cached_property
    def linked_text(self) -> Mapping[str, NDArray[Any]]:
        """Each module's part of its package's linked text, float64 ``[modules]`` in bytes."""
        return {name: self._shares(name) for name in (BASELINE, *self.policies) if self._has_code}

    def statistics(self) -> list[Statistic]:
        """Return the statistics that can be computed for these modules."""
        has = {"score": bool(self.modules and self.modules[0].costs), "text": self._has_code}
        return [
            each
            for each in STATISTICS
            if has["score" if each.key.startswith("score") else "text"]
            and (not each.of_packages or len(self.packages) > 1)
        ]

    @property
    def main_statistic(self) -> Statistic:
        """The statistic to compare policies by first: linked text, or the mean of the scores."""
        keys = {each.key: each for each in self.statistics()}
        return keys.get("score_mean") or keys["linked_text"]

    @property
    def module_statistic(self) -> Statistic:
        """The statistic of a module by itself: its text, or its score."""
        keys = {each.key: each for each in self.statistics()}
        return keys.get("score") or keys["text"]

    def baseline(self, statistic: Statistic) -> float:
        """The total under LLVM's own heuristic, or how many ratios a mean is of."""
        return float(self._sums(statistic, self.policies[0])[1].sum())

    def total(self, statistic: Statistic, policy: str) -> float:
        """The total under a policy."""
        return float(self._sums(statistic, policy)[0].sum())

    def change(self, statistic: Statistic, policy: str) -> RelativeChange:
        """How a policy changes a statistic."""
        if statistic.of_packages:
            return self._mean_of_packages(policy)
        above, below = self._sums(statistic, policy)
        to_change = math.expm1 if statistic.is_mean else lambda ratio: ratio - 1
        total = below.sum()
        value = to_change(float(above.sum() / total)) if total else 0.0
        ends = interval(self._weights, above, below) if len(self.modules) > 1 else None
        return RelativeChange(value, (to_change(ends[0]), to_change(ends[1])) if ends else None)

    def worse(self, policy: str) -> list[Worse]:
        """The modules that got worse by more than 1 %, the worst first.

        By text, where it is known, and then by more than 64 bytes too; otherwise by score.
        """
        key, least = ("text", WORSE_BYTES) if self._has_code else ("score", 0)
        values, baselines = self.values(key, policy), self.values(key, BASELINE)
        found = [
            Worse(scores, float(baseline), float(value))
            for scores, baseline, value in zip(self.modules, baselines, values, strict=True)
            if value > WORSE_RATIO * baseline and value - baseline > least
        ]
        return sorted(found, key=lambda each: each.baseline - each.value)

    def values(self, key: str, name: str) -> NDArray[Any]:
        """One number a module, float64 ``[modules]``: ``text``, ``linked_text`` or ``score``."""
        if key == "linked_text":
            return self.linked_text[name] if self.modules else np.zeros(0)
        if key == "text":
            return np.array([each.code[name].text_bytes for each in self.modules], float)
        return np.array([each.costs[name] for each in self.modules], float)

    def _mean_of_packages(self, policy: str) -> RelativeChange:
        """The geometric mean of the packages' ratios of linked text, each counting the same."""
        if not self.modules:
            return RelativeChange(0.0, None)
        number = {name: place for place, name in enumerate(self.packages)}
        belongs = np.zeros((len(self.modules), len(number)))
        belongs[range(len(belongs)), [number[each.package] for each in self.modules]] = 1
        values, baselines = self.values("linked_text", policy), self.values("linked_text", BASELINE)

        def logarithms(weights: NDArray[Any]) -> NDArray[Any]:
            above, below = (weights * values) @ belongs, (weights * baselines) @ belongs
            known = (above > 0) & (below > 0)
            ratios = np.divide(above, below, where=known, out=np.ones_like(above))
            drawn = known * (weights @ belongs) / belongs.sum(axis=0)
            total = drawn.sum(axis=1)
            means: NDArray[Any] = (drawn * np.log(ratios)).sum(axis=1) / np.maximum(total, 1)
            return means

        value = math.expm1(logarithms(np.ones((1, len(values))))[0])
        if len(self.modules) < 2:
            return RelativeChange(value, None)
        low, high = np.percentile(logarithms(self._weights), LEVEL)
        return RelativeChange(value, (math.expm1(low), math.expm1(high)))

    @property
    def _has_code(self) -> bool:
        return bool(self.modules) and all(each.code for each in self.modules)

    @cached_property
    def _weights(self) -> NDArray[Any]:
        return draw([each.package for each in self.modules], self._seed, self._resamples)

    def _shares(self, name: str) -> NDArray[Any]:
        shares = [
            linked_text_shares([each.code[name] for each in modules])
            for _, modules in groupby(self.modules, lambda each: each.package)
        ]
        return np.concatenate(shares)

    def _sums(self, statistic: Statistic, policy: str) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return the terms above and below the fraction's line, each ``[modules]``."""
        if statistic.of_packages:
            return np.zeros(0), np.ones(len(self.packages))
        if statistic.key == "score_mean":
            means = [each.functions[policy] for each in self.modules]
            counts = np.array([each.count for each in means], float)
            return np.array([math.log(each.ratio) for each in means]) * counts, counts
        key = {"text_mean": "text", "score_module_mean": "score"}.get(statistic.key, statistic.key)
        values, baselines = self.values(key, policy), self.values(key, BASELINE)
        if not statistic.is_mean:
            return values, baselines
        known = (values > 0) & (baselines > 0)
        ratios = np.divide(values, baselines, where=known, out=np.ones(len(values)))
        return np.log(ratios), known.astype(float)


def draw(packages: Sequence[Hashable], seed: int, resamples: int = RESAMPLES) -> NDArray[Any]:
    """How often each module is drawn, its package before it: int64 ``[resamples, modules]``."""
    order = {name: number for number, name in enumerate(dict.fromkeys(packages))}
    numbers = np.array([order[name] for name in packages], np.int64)
    random = np.random.default_rng(seed)
    known, sizes = np.unique(numbers, return_counts=True)
    weights = np.zeros((resamples, len(numbers)), np.int64)
    if len(known):
        times = random.multinomial(len(known), np.full(len(known), 1 / len(known)), resamples)
        for package, size, drawn in zip(known, sizes, times.T, strict=True):
            weights[:, numbers == package] = random.multinomial(
                drawn * size, np.full(size, 1 / size)
            )
    return weights


def interval(
    weights: NDArray[Any], numerators: NDArray[Any], denominators: NDArray[Any]
) -> tuple[float, float] | None:
    """The middle 95 % of a ratio of sums over the samples, ``None`` where no sample has a ratio.

    The weights are `draw`'s; what is above and below the line is float ``[modules]``.
    """
    above, below = weights @ numerators, weights @ denominators
    ratios = above[below != 0] / below[below != 0]
    if not len(ratios):
        return None
    low, high = np.percentile(ratios, LEVEL)
    return float(low), float(high)

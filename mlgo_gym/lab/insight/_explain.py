"""The features that an inlining model uses: its decisions when they are permuted or varied.

*Permutation importance* (Breiman, "Random Forests", 2001, section 10): the values of one feature
are permuted among recorded observations, and the decisions that change are counted. It says what
the model's answers rest on, and neither whether they are good nor what LLVM needs: features that
say the same share what they are worth, and permuted observations need not occur in any program.
For some modules it is also measured what the code then weighs.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from mlgo_gym.base import CorpusError
from mlgo_gym.corpus import Module, Packages, PackagesLike
from mlgo_gym.evaluation import Setting, new_figure, plot_label
from mlgo_gym.problems import (
    DEFAULT_ADVICE,
    Action,
    Answer,
    Policy,
    PolicyLike,
    Problem,
    as_policy,
)
from mlgo_gym.rollout import Failure, ModuleReport
from mlgo_gym.runners import MLModelRunner
from mlgo_gym.stream import Observation

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COST: Final = "cost_estimate"
"""The feature that LLVM's own heuristic compares with its threshold."""

_SHOWN: Final = 20
_NEAR: Final = (-100.0, 250.0)
"""Costs between which answers may turn; a static function's only call has -15,000 and more."""

_GRID: Final = 71
_SAMPLE: Final = 1000
_MAP_GRID: Final = 36
_MAP_ROWS: Final = 12
_MAP_SAMPLE: Final = 200
_FEWEST: Final = 20
_MOST_BINS: Final = 30


@dataclass(frozen=True, slots=True)
class Questions:
    """The questions to a model on its own way through modules, and their counts, in order.

    Values are structured ``[observations]``, with a field for each tensor that LLVM sends
    (`mlgo_gym.problems.Layout.array`); decisions are int64 ``[observations]``.
    """

    values: NDArray[Any]
    decisions: NDArray[Any]
    asked: tuple[int, ...]
    errors: tuple[Failure, ...]

    @property
    def features(self) -> tuple[str, ...]:
        """The features that LLVM sends, by name, in order."""
        return self.values.dtype.names or ()

    def sample(self, count: int, seed: int) -> Questions:
        """At most so many of the observations; the same seed gives the same."""
        if len(self.values) <= count:
            return self
        chosen = np.random.default_rng(seed).choice(len(self.values), count, replace=False)
        chosen.sort()
        return Questions(self.values[chosen], self.decisions[chosen], self.asked, self.errors)


@dataclass(frozen=True, slots=True)
class Importance:
    """The share of decisions that change when a feature is permuted: the repeats' mean, deviation.

    `to_inline` is a part of `changed`; of one different value nothing can change. A feature of
    several numbers is permuted as a whole. One repeat has no deviation.
    """

    feature: str
    changed: float
    deviation: float | None
    to_inline: float
    values: int


def record_observations(
    corpora: PackagesLike, policy: PolicyLike, setting: Setting
) -> Generator[Questions]:
    """Record LLVM's questions to a model, module by module; modules that fail have none."""
    with closing(setting.rollout(corpora, {"model": policy}, keep_decisions=True)) as reports:
        yield from (_recorded(report, setting.problem) for report in reports)


def joined(parts: Sequence[Questions]) -> Questions:
    """The observations of several modules, of which there must be some."""
    values = [part.values for part in parts if len(part.values)]
    if not values:
        raise CorpusError("corpus: expected modules in which LLVM asks, found none")
    return Questions(
        np.concatenate(values),
        np.concatenate([part.decisions for part in parts if len(part.values)]),
        tuple(asked for part in parts for asked in part.asked),
        tuple(error for part in parts for error in part.errors),
    )


def decide(runner: MLModelRunner, values: NDArray[Any]) -> NDArray[Any]:
    """A model's answers, int64 ``[observations]``, to values of `Questions`."""
    answers = np.empty(len(values), np.int64)
    for index, value in enumerate(values):
        runner.fill(value.tobytes())
        answers[index] = runner.evaluate().item()
    return answers


def permutation_importance(
    runner: MLModelRunner, recorded: Questions, *, seed: int, repeats: int
) -> Generator[Importance]:
    """Permute one feature after the other, in their order."""
    for column, feature in enumerate(recorded.features):
        original = recorded.values[feature]
        values = len(np.unique(original, axis=0))
        random = np.random.default_rng([seed, column])
        rounds = []
        for _ in range(repeats if values > 1 else 0):
            permuted = recorded.values.copy()
            permuted[feature] = random.permutation(original)
            is_other = permuted != recorded.values  # the answer to what stays is known
            changes = np.zeros(len(original), np.int64)
            changes[is_other] = decide(runner, permuted[is_other]) - recorded.decisions[is_other]
            rounds.append(changes)
        found = np.array(rounds or [np.zeros_like(recorded.decisions)])
        shares = (found != 0).mean(axis=1)
        yield Importance(
            feature,
            float(shares.mean()),
            float(shares.std()) if repeats > 1 else None,
            float((found > 0).mean()),
            values,
        )


def most_asking(recorded: Questions, corpora: PackagesLike, count: int) -> Packages:
    """The modules that asked most, in that order, of those that were recorded."""
    packages = Packages.of(corpora)
    asked = sorted(zip(recorded.asked, packages, strict=True), key=lambda pair: -pair[0])
    return packages.only(key for decisions, key in asked[:count] if decisions)


def text_when_permuted(
    corpora: PackagesLike,
    features: Sequence[str],
    policy: PolicyLike,
    recorded: Questions,
    setting: Setting,
    *,
    seed: int,
) -> Generator[ModuleReport]:
    """Compile modules as they are (``""``) and with each feature's values from other decisions.

    The same seed, module and feature give the same draws.
    """
    policies = {"": policy} | {
        feature: _Permuted(policy, feature, recorded, seed) for feature in features
    }
    return setting.rollout(corpora, policies)


@dataclass(frozen=True, slots=True)
class PermutedText:
    """The text of modules by the feature that is permuted; ``""`` is the model as it is."""

    modules: tuple[str, ...]
    text_bytes: Mapping[str, int]
    errors: tuple[Failure, ...]

    @classmethod
    def of(cls, reports: Sequence[ModuleReport]) -> PermutedText:
        """The sums over the reports of `text_when_permuted`."""
        complete = [report for report in reports if report.is_complete]
        names = [each.policy for report in complete[:1] for each in report.attempts]
        sums = dict.fromkeys(names or [""], 0)
        for report in complete:
            for attempt in report.attempts:
                sums[attempt.policy] += int(attempt.result.score) if attempt.result else 0
        errors = (error for report in reports for error in report.failures)
        return cls(tuple(report.module for report in complete), sums, tuple(errors))

    def change(self, feature: str) -> float:
        """How much more that is than with the model as it is, as a share; negative is less."""
        whole = self.text_bytes[""]
        return self.text_bytes[feature] / whole - 1 if whole else 0.0


def share_inlined(
    runner: MLModelRunner, values: NDArray[Any], settings: Mapping[str, float]
) -> float:
    """The share of observations that a model inlines when these features have other values."""
    changed = values.copy()
    for feature, value in settings.items():
        changed[feature] = value
    return float((decide(runner, changed) != 0).mean())


def _recorded(report: ModuleReport, problem: Problem) -> Questions:
    complete = report.attempts if report.is_complete else ()
    decisions = [each for attempt in complete for each in attempt.decisions]
    return Questions(
        problem.layout.array(each.payload for each in decisions),
        np.frombuffer(b"".join(each.advice for each in decisions), np.int64),
        (len(decisions),),
        report.failures,
    )


class _Permuted(Policy):
    """A policy that gets one feature's values from other decisions."""

    def __init__(self, policy: PolicyLike, feature: str, recorded: Questions, seed: int) -> None:
        self._policy = as_policy(policy)
        self._drawn = np.ascontiguousarray(recorded.values[feature])
        self._seed = seed, recorded.features.index(feature)
        dtype = recorded.values.dtype
        start = sum(dtype[name].itemsize for name in recorded.features[: self._seed[1]])
        self._place = slice(start, start + dtype[feature].itemsize)

    @contextmanager
    def begin(self, module: Module) -> Iterator[Answer]:
        random = np.random.default_rng([*self._seed, *bytes.fromhex(module.sha256)])
        with self._policy.begin(module) as answer:

            def permuted(observation: Observation) -> Action:
                payload = bytearray(observation.payload)
                value = self._drawn[random.integers(len(self._drawn))]
                payload[self._place] = value.tobytes()
                asked = observation.header, observation.context, observation.index, bytes(payload)
                return answer(Observation(*asked))

            yield permuted


def importance_plot(importances: Sequence[Importance]) -> Figure:
    """The features that change most decisions, as bars with the repeats' standard deviations."""
    shown = [each for each in importances if each.changed][:_SHOWN]
    figure = new_figure(8, 1.5 + 0.28 * len(shown))
    axes = figure.add_subplot()
    axes.barh(
        range(len(shown)),
        [100 * each.changed for each in shown],
        xerr=[100 * (each.deviation or 0) for each in shown],
        color="tab:blue",
    )
    axes.set_yticks(range(len(shown)), [plot_label(each.feature) for each in shown])
    axes.invert_yaxis()
    axes.grid(axis="x", alpha=0.3)
    axes.set_xlabel("decisions that change when the feature is permuted, in percent")
    return figure


def boundary_plot(runner: MLModelRunner, recorded: Questions, other: str, seed: int) -> Figure:
    """Plot where a model's answer changes over `COST`, and with one more feature varied."""
    figure = new_figure(13, 5)
    left, right = figure.subplots(1, 2)
    _curves(left, runner, recorded, seed)
    _map(right, runner, recorded, other, seed)
    return figure


def _curves(axes: Axes, runner: MLModelRunner, recorded: Questions, seed: int) -> None:
    costs = recorded.values[COST]
    grid = _cost_grid(costs, _GRID)
    sample = recorded.sample(_SAMPLE, seed).values
    axes.plot(
        grid,
        [100 * share_inlined(runner, sample, {COST: int(cost)}) for cost in grid],
        color="tab:blue",
        label="model, if all calls had this cost",
    )
    answers = {"model": recorded.decisions, "LLVM's default": recorded.values[DEFAULT_ADVICE]}
    for (name, values), colour in zip(answers.items(), ("tab:orange", "black"), strict=True):
        centres, shares = _by_bin(costs, values != 0, grid[0], grid[-1])
        axes.plot(centres, shares, "o-", markersize=3, color=colour, label=f"{name}, as asked")
    axes.set_xlabel(f"{COST} (LLVM's inline cost)")
    axes.set_ylabel("calls inlined, in percent")
    axes.set_ylim(-3, 103)
    axes.grid(alpha=0.3)
    axes.legend()
    axes.set_title(f"{len(costs):,} recorded decisions")


def _map(axes: Axes, runner: MLModelRunner, recorded: Questions, other: str, seed: int) -> None:
    costs = _cost_grid(recorded.values[COST], _MAP_GRID)
    quantiles = np.linspace(0, 1, _MAP_ROWS)
    others = np.unique(np.quantile(recorded.values[other], quantiles, method="nearest"))
    sample = recorded.sample(_MAP_SAMPLE, seed).values
    shares = [
        [100 * share_inlined(runner, sample, {COST: int(x), other: y.item()}) for x in costs]
        for y in others
    ]
    rows = range(len(others))
    mesh = axes.pcolormesh(costs, rows, shares, cmap="RdBu_r", vmin=0, vmax=100, shading="nearest")
    if np.ptp(shares) and min(np.shape(shares)) > 1:
        axes.contour(costs, rows, shares, levels=[50], colors="black")
    axes.set_yticks(rows, [f"{value:,}" for value in others])
    axes.set_xlabel(COST)
    axes.set_ylabel(f"{plot_label(other)}, at its quantiles")
    axes.set_title(f"calls inlined by the model, if all had these {COST} and {plot_label(other)}")
    axes.figure.colorbar(mesh, ax=axes, label="percent; the line is 50")


def _cost_grid(costs: NDArray[Any], count: int) -> NDArray[Any]:
    """Whole numbers over the middle 98 % of the costs, as far as they are near the threshold."""
    low, high = np.clip(np.percentile(costs, (1, 99)), *_NEAR)
    return np.unique(np.rint(np.linspace(low, high, count)).astype(np.int64))


def _by_bin(
    costs: NDArray[Any], inlined: NDArray[Any], low: int, high: int
) -> tuple[NDArray[Any], NDArray[Any]]:
    """The mean cost of bins of about as many calls each, and the percentage that is inlined."""
    shown = (costs >= low) & (costs <= high)
    costs, inlined = costs[shown], inlined[shown]
    bins = np.clip(len(costs) // _FEWEST, 1, _MOST_BINS)
    edges = np.unique(np.quantile(costs, np.linspace(0, 1, bins + 1)[1:-1], method="nearest"))
    places = np.searchsorted(edges, costs, "right")
    counts = np.bincount(places)
    known = counts > 0
    centres, shares = (np.bincount(places, each)[known] for each in (costs, inlined))
    return centres / counts[known], 100 * shares / counts[known]

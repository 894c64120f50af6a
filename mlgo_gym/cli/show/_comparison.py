"""A comparison of policies with LLVM's default: as a grid, as JSON and as a plot."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from itertools import chain, repeat
from typing import TYPE_CHECKING, Any, Final

from mlgo_gym.base import MlgoGymError
from mlgo_gym.cli.show._grid import Grid, Row, amount, percent, ratio, short_names
from mlgo_gym.evaluation import WIDTH, Scored, new_figure, plot_label, plots_of, scores_of
from mlgo_gym.rollout import GeometricMean, ModuleReport, Result, geometric_mean_ratio

if TYPE_CHECKING:
    from matplotlib.figure import Figure


_BAR: Final = 30
"""Characters of the longest bar."""

_SMALLER: Final = "\u2588"
_LARGER: Final = "\u2591"

_MOST_BARS: Final = 16
"""So many modules have bars with names; more are points."""


def as_grid(reports: Sequence[ModuleReport], policies: Sequence[str]) -> Grid:
    """Scores under LLVM's default, each policy's change, and a sum of what all of them compiled."""
    complete = [report for report in reports if report.is_complete]
    baseline = _total(complete, None)
    title = reports[0].measure.title if reports else "score"
    rows = [[report.module, *_row(report, policies)] for report in reports]
    counts = amount(sum(map(_decisions, complete))), amount(baseline)
    changes = (ratio(_total(complete, policy), baseline) for policy in policies)
    headings = ("module", "decisions", f"LLVM, {title}", *policies)
    return Grid(headings, rows, ["total", *counts, *changes] if complete else ())


def as_json(reports: Sequence[ModuleReport], policies: Sequence[str]) -> dict[str, Any]:
    """Return a comparison as JSON values, with hashes, settings and errors."""
    complete = [report for report in reports if report.is_complete]
    key = reports[0].measure.key if reports else "score"
    return {
        "modules": [_record(report) for report in reports],
        "total": {
            "modules": len(complete),
            f"baseline_{key}": _total(complete, None),
            key: {policy: _total(complete, policy) for policy in policies},
        },
        "geometric_mean": {each: asdict(_geometric_mean(complete, each)) for each in policies},
    }


def mean_note(reports: Sequence[ModuleReport], policies: Sequence[str]) -> str:
    """The change of each policy in the geometric mean over what is scored by itself."""
    complete = [report for report in reports if report.is_complete]
    changes = []
    for policy in policies:
        mean = _geometric_mean(complete, policy)
        left_out = f", {mean.left_out:,} left out with a score of 0" if mean.left_out else ""
        changes.append(f"{policy} {percent(mean.ratio - 1)} ({mean.count:,} functions{left_out})")
    return f"Geometric mean over the functions that ask: {'; '.join(changes)}."


def control_note(reports: Sequence[ModuleReport], control: str) -> str:
    """Whether a policy that answers as LLVM would makes the objects of LLVM left alone."""
    complete = [report for report in reports if report.is_complete]
    equal = sum(
        report.baseline.digest == result.digest
        for report in complete
        if report.baseline and (result := _result(report, control))
    )
    note = (
        f"Control: answered with LLVM's default, {equal} of {len(complete)} objects are equal "
        "byte for byte to those of LLVM left alone."
    )
    if equal < len(complete):
        note += (
            " Others grew to the limit at which LLVM's advisor stops asking; "
            "--size-increase-threshold inf lifts it."
        )
    return note


def legend(reports: Sequence[ModuleReport], asked_by: str) -> str:
    meaning = reports[0].measure.meaning if reports else ""
    return (
        f"LLVM: {meaning} as LLVM's own heuristic leaves it. Policies: change against it; "
        f"negative is smaller. Decisions: asked under {asked_by}; other answers lead to more or "
        "fewer."
    )


def bars(reports: Sequence[ModuleReport], policies: Sequence[str]) -> str:
    """Each policy's change of each module as bars of text, for a terminal of 80 columns."""
    changes = _changes(reports, policies)
    largest = max((abs(each) for row in changes.values() for each in row), default=0.0)
    names = short_names([*changes])
    left, middle = (max(map(len, words), default=0) for words in (names, policies))
    lines = []
    for name, row in zip(names, changes.values(), strict=True):
        for label, policy, change in zip(chain([name], repeat("")), policies, row, strict=False):
            block = _SMALLER if change < 0 else _LARGER
            bar = block * round(_BAR * abs(change) / largest) if largest else ""
            lines.append(f"{label:{left}}  {policy:{middle}}  {percent(change):>8}  {bar}".rstrip())
    return "\n".join([*lines, f"{_SMALLER} smaller than LLVM's own, {_LARGER} larger"])


def plot(reports: Sequence[ModuleReport], policies: Sequence[str]) -> Figure | None:
    """Each policy's change of each module: as bars, or many modules by their sizes.

    ``None`` where all failed.
    """
    changes = _changes(reports, policies)
    if not changes:
        return None
    if len(changes) > _MOST_BARS:
        return plots_of(Scored([scores_of(each) for each in reports], policies))["modules"]
    figure = new_figure(WIDTH, 1.2 + 0.22 * len(changes) * (len(policies) + 1))
    axes = figure.add_subplot()
    for index, policy in enumerate(policies):
        offset = 0.8 * ((index + 0.5) / len(policies) - 0.5)
        places = [row + offset for row in range(len(changes))]
        values = [100 * row[index] for row in changes.values()]
        drawn = axes.barh(places, values, 0.8 / len(policies), label=plot_label(policy))
        axes.bar_label(drawn, [f" {each:+.1f} % " for each in values], fontsize=7)
    axes.set_yticks(range(len(changes)), list(map(plot_label, changes)))
    axes.set_ylim(len(changes) - 0.5, -0.5)
    axes.margins(x=0.12)
    axes.axvline(0, color="black", linewidth=0.8)
    title = plot_label(reports[0].measure.title)
    axes.set_xlabel(f"change of {title} against LLVM's default, in percent (left is better)")
    axes.legend(fontsize=8)
    axes.spines[["top", "right"]].set_visible(False)
    return figure


def _changes(reports: Sequence[ModuleReport], policies: Sequence[str]) -> dict[str, list[float]]:
    """By module, and in total, each policy's change of what all of them compiled."""
    complete = [report for report in reports if report.is_complete and _score(report, None)]
    changes = {
        report.module: [_score(report, each) / _score(report, None) - 1 for each in policies]
        for report in complete
    }
    if len(complete) > 1:
        baseline = _total(complete, None)
        changes["total"] = [_total(complete, each) / baseline - 1 for each in policies]
    return changes


def _row(report: ModuleReport, policies: Sequence[str]) -> Row:
    if report.baseline is None:
        return ["", "failed", *[""] * len(policies)]
    baseline = _score(report, None)
    changes = [
        ratio(result.score, baseline) if (result := _result(report, policy)) else "failed"
        for policy in policies
    ]
    return [amount(_decisions(report)), amount(baseline), *changes]


def _record(report: ModuleReport) -> dict[str, Any]:
    record: dict[str, Any] = {"module": report.module, "error": _text(report.error)}
    if report.baseline is not None:
        record["sha256"] = report.baseline.module_sha256
        record["llvm_version"] = report.baseline.llvm_version
        record["baseline"] = report.baseline.record()
    policies = record["policies"] = {}
    for each in report.attempts:
        policies[each.policy] = {"error": _text(each.error)}
        if result := each.result:
            made = {"decisions": result.decisions, "reward": report.reward(each)}
            policies[each.policy] = result.record() | made
    return record


def _text(error: MlgoGymError | None) -> str | None:
    return None if error is None else str(error)


def _geometric_mean(reports: Sequence[ModuleReport], policy: str) -> GeometricMean:
    scores, baselines = (
        {
            (index, name): score
            for index, report in enumerate(reports)
            if (result := _result(report, which)) is not None
            for name, score in report.measure.parts(result).items()
        }
        for which in (policy, None)
    )
    return geometric_mean_ratio(scores, baselines)


def _result(report: ModuleReport, policy: str | None) -> Result | None:
    if policy is None:
        return report.baseline
    attempt = report.attempt(policy)
    return attempt.result if attempt else None


def _decisions(report: ModuleReport) -> int:
    """Return the number of the first policy's questions; others may be asked more or less."""
    result = report.attempts[0].result if report.attempts else None
    return result.decisions if result else 0


def _score(report: ModuleReport, policy: str | None) -> float:
    result = _result(report, policy)
    return report.measure.score(result) if result else 0


def _total(reports: Sequence[ModuleReport], policy: str | None) -> float:
    return sum(_score(report, policy) for report in reports)

"""A comparison of policies with LLVM's default: as a grid, as JSON and as a plot."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from mlgo_gym.base import MlgoGymError
from mlgo_gym.cli.show._grid import Grid, Row, amount, percent, ratio
from mlgo_gym.evaluation import Scored, plots_of, scores_of
from mlgo_gym.rollout import GeometricMean, ModuleReport, Result, geometric_mean_ratio

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def as_grid(reports: Sequence[ModuleReport], policies: Sequence[str]) -> Grid:
    """Scores under LLVM's default, each policy's change, and a sum of what all of them compiled."""
    complete = [report for report in reports if report.is_complete]
    baseline = _total(complete, None)
    title = reports[0].measure.title if reports else "score"
    rows = [[report.module, *_row(report, policies)] for report in reports]
    counts = amount(sum(map(_decisions, complete))), amount(baseline)
    changes = (ratio(_total(complete, policy), baseline) for policy in policies)
    headings = ("module", "decisions", f"LLVM, {title}", *policies)
    return Grid(headings, rows, ["total", *counts, *changes])


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


def plot(reports: Sequence[ModuleReport], policies: Sequence[str]) -> Figure | None:
    """Each policy's change of each module, by the module's size; ``None`` where all failed."""
    scored = Scored([scores_of(each, "") for each in reports], policies)
    return plots_of(scored)["modules"] if scored.modules else None


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

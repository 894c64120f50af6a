"""A comparison of policies with LLVM's default: as a table, as JSON and as a plot."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from itertools import takewhile
from pathlib import Path, PurePosixPath
from typing import Any, Final

from rich.table import Table
from rich.text import Text

from mlgo_gym.files import replacing
from mlgo_gym.rollout._rollout import ModuleReport
from mlgo_gym.scoring._allocation import GeometricMean, geometric_mean_ratio
from mlgo_gym.scoring._measures import Result

_SHORTEST_NAME: Final = 12
_ZERO_BAND: Final = 0.0005
_PLOT_SUFFIXES: Final = (".png", ".svg", ".pdf")


def as_table(reports: Sequence[ModuleReport], policies: Sequence[str], width: int) -> Table:
    """The score per module under LLVM's default, and each policy's change against it.

    The last row sums up the modules that every policy compiled. Where the table would be wider
    than ``width`` characters, names give way, never numbers.
    """
    complete = [report for report in reports if report.is_complete]
    baseline = _total(complete, None)
    headings = ("decisions", f"LLVM, {_title(reports)}", *policies)
    rows = [_row(report, policies) for report in reports]
    asked = f"{sum(_decisions(report) for report in complete):,}"
    changes = [_styled(_change(_total(complete, policy), baseline)) for policy in policies]
    footer: list[str | Text] = [asked, f"{baseline:,.0f}", *changes]
    table = Table("module", show_footer=True)
    table.columns[0].footer = "total"
    left = width - len("│  │")
    for heading, total, cells in zip(headings, footer, zip(*rows, strict=True), strict=True):
        table.add_column(heading, total, justify="right", no_wrap=True)
        left -= max(len(each) for each in (heading, total, *cells)) + len("  │")
    names = short_names([report.module for report in reports])
    for report, row in zip(reports, rows, strict=True):
        table.add_row(cut(names[report.module], max(left, _SHORTEST_NAME)), *row)
    return table


def short_names(names: Sequence[str]) -> dict[str, str]:
    """The names without the folders that all of them start with.

    >>> short_names(["src/lua/lapi.c", "src/lua/lib/lgc.c"])
    {'src/lua/lapi.c': 'lapi.c', 'src/lua/lib/lgc.c': 'lib/lgc.c'}
    """
    folders = [PurePosixPath(name).parent.parts for name in names]
    levels = takewhile(lambda level: len(set(level)) == 1, zip(*folders, strict=False))
    common = sum(1 for _ in levels)
    return {name: str(PurePosixPath(*PurePosixPath(name).parts[common:])) for name in names}


def as_json(reports: Sequence[ModuleReport], policies: Sequence[str]) -> dict[str, Any]:
    """The same as JSON values, with hashes, settings and errors."""
    complete = [report for report in reports if report.is_complete]
    key = reports[0].measure.key if reports else "score"
    return {
        "modules": [_record(report) for report in reports],
        "total": {
            "modules": len(complete),
            f"baseline_{key}": _total(complete, None),
            key: {policy: _total(complete, policy) for policy in policies},
        },
        "geometric_mean": {
            policy: asdict(_geometric_mean(complete, policy)) for policy in policies
        },
    }


def mean_note(reports: Sequence[ModuleReport], policies: Sequence[str]) -> str:
    """The change of each policy in the geometric mean over what is scored by itself."""
    complete = [report for report in reports if report.is_complete]
    changes = []
    for policy in policies:
        mean = _geometric_mean(complete, policy)
        left_out = f", {mean.left_out:,} left out with a score of 0" if mean.left_out else ""
        changes.append(f"{policy} {_change(mean.ratio, 1)} ({mean.count:,} functions{left_out})")
    return f"Geometric mean over the functions that ask: {'; '.join(changes)}."


def save_plot(reports: Sequence[ModuleReport], policies: Sequence[str], path: Path) -> None:
    """Plot each policy's change of text per module, in percent of LLVM's default."""
    from matplotlib.figure import Figure

    complete = [
        each for each in reports if each.is_complete and _decisions(each) and _score(each, None)
    ]
    baseline = _total(complete, None)
    figure = Figure(figsize=(9, 1.5 + 0.3 * len(complete)), layout="constrained")
    axes = figure.add_subplot()
    height = 0.8 / len(policies)
    for index, policy in enumerate(policies):
        offset = (index - (len(policies) - 1) / 2) * height
        axes.barh(
            [row + offset for row in range(len(complete))],
            [100 * (_score(report, policy) / _score(report, None) - 1) for report in complete],
            height,
            label=f"{policy} ({_change(_total(complete, policy), baseline)} in total)",
        )
    shown = short_names([report.module for report in complete])
    axes.set_yticks(range(len(complete)), list(shown.values()))
    axes.invert_yaxis()
    axes.margins(y=0.01)
    axes.axvline(0, color="black", linewidth=0.8)
    axes.set_xlabel(
        f"change of {_title(reports)} against LLVM's default, in percent (left is better)"
    )
    axes.set_title(
        f"{len(complete)} modules, {baseline:,.0f} {_title(reports)} under LLVM's default"
    )
    axes.legend()
    with replacing(path) as file:
        figure.savefig(file, format=path.suffix.removeprefix("."))


def cut(name: str, width: int) -> str:
    """A name without its beginning, where it would be longer than so many characters."""
    return name if len(name) <= width else "…" + name[len(name) - width + 1 :]


def check_plot_path(path: Path) -> str | None:
    """Why a plot cannot be written there, if so."""
    if path.suffix not in _PLOT_SUFFIXES:
        return f"expected a file name ending in {', '.join(_PLOT_SUFFIXES)}, found {str(path)!r}"
    if not path.resolve().parent.is_dir():
        return f"expected an existing folder, found {str(path.parent)!r}"
    if path.is_dir():
        return f"expected a file, found the folder {str(path)!r}"
    return None


def _row(report: ModuleReport, policies: Sequence[str]) -> list[str | Text]:
    if report.baseline is None:
        return ["", "failed", *[""] * len(policies)]
    score = _score(report, None)
    changes: list[str | Text] = [
        _styled(_change(report.measure.score(attempt.result), score))
        if (attempt := report.attempt(policy)) and attempt.result
        else "failed"
        for policy in policies
    ]
    return [f"{_decisions(report):,}", f"{score:,.0f}", *changes]


def _record(report: ModuleReport) -> dict[str, Any]:
    record: dict[str, Any] = {"module": report.module, "error": report.error}
    if report.baseline is not None:
        record["sha256"] = report.baseline.module_sha256
        record["llvm_version"] = report.baseline.llvm_version
        record["baseline"] = report.baseline.record()
    record["policies"] = {
        each.policy: each.result.record()
        | {"decisions": each.result.decisions, "reward": report.reward(each)}
        if each.result
        else {"error": each.error}
        for each in report.attempts
    }
    return record


def _title(reports: Sequence[ModuleReport]) -> str:
    return reports[0].measure.title if reports else "score"


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
    """What the first policy was asked; under another, LLVM may ask more or less."""
    result = report.attempts[0].result if report.attempts else None
    return result.decisions if result else 0


def _score(report: ModuleReport, policy: str | None) -> float:
    result = _result(report, policy)
    return report.measure.score(result) if result else 0


def _total(reports: Sequence[ModuleReport], policy: str | None) -> float:
    return sum(_score(report, policy) for report in reports)


def _change(score: float, baseline: float) -> str:
    if baseline == 0:
        return "0.0 %" if score == 0 else "new"
    change = score / baseline - 1
    return "0.0 %" if abs(change) < _ZERO_BAND else f"{100 * change:+.1f} %"


def _styled(change: str) -> Text:
    return Text(change, style={"+": "red", "-": "green"}.get(change[0], ""))

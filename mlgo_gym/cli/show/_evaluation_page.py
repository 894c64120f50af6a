"""An evaluation as one HTML page that needs nothing else."""

from __future__ import annotations

import base64
import html
import io
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from mlgo_gym.cli.show._evaluation_tables import percent
from mlgo_gym.cli.show._page import Cell, as_page, as_table
from mlgo_gym.evaluation._scores import BASELINE, ModuleScores
from mlgo_gym.evaluation._summary import Change, Scored, Statistic

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_DPI: Final = 110


def evaluation_page(scored: Scored, plots: Mapping[str, Figure]) -> bytes:
    """The page: totals, packages and modules, whose rows a click sorts, and the plots.

    Args:
        scored: the evaluation.
        plots: by name; they are put into the page.
    """
    first = scored.modules[0]
    introduction = (
        f"{', '.join(scored.policies)} against LLVM {first.llvm_version}'s own heuristic "
        f"({first.settings['problem']}): {len(scored.modules)} modules of {len(scored.packages)} "
        "packages. Changes are shares of LLVM's value, negative is better; in brackets 95 % "
        "bootstrap intervals over packages and their modules. Linked text counts each COMDAT "
        "group once in a package; a module's part of it is shared by the modules that have the "
        "group. Click a heading to sort."
    )
    return as_page("Evaluation against LLVM's default", introduction, _sections(scored, plots))


def _sections(scored: Scored, plots: Mapping[str, Figure]) -> Iterator[tuple[str, str]]:
    languages = {name: scored.of_language(name) for name in scored.languages}
    packages = {name: scored.of_package(name) for name in scored.packages}
    yield "Totals", _image(plots, "totals") + _changes("language", languages, scored)
    yield "Packages", _image(plots, "packages") + _changes("package", packages, scored)
    yield "Modules", _image(plots, "modules") + _modules(scored)
    for policy in scored.policies:
        yield f"Modules that {policy} makes worse", _worse(scored, policy)


def _image(plots: Mapping[str, Figure], name: str) -> str:
    if name not in plots:
        return ""
    file = io.BytesIO()
    plots[name].savefig(file, format="png", dpi=_DPI)
    data = base64.b64encode(file.getvalue()).decode("ascii")
    return f'<p><img alt="{html.escape(name)}" src="data:image/png;base64,{data}"></p>'


def _changes(first: str, groups: Mapping[str, Scored], total: Scored) -> str:
    """Groups of modules: LLVM's totals and every change."""
    statistics = total.statistics()
    headings = [first, "modules"]
    for statistic in statistics:
        headings += [] if statistic.is_mean else [f"{statistic.title}, {BASELINE}"]
        headings += [f"{statistic.title}, {policy}" for policy in total.policies]
    rows = [_group(name, group, statistics) for name, group in groups.items()]
    return as_table(headings, rows, _group("total", total, statistics))


def _group(name: str, group: Scored, statistics: Sequence[Statistic]) -> list[Cell | str]:
    row: list[Cell | str] = [name, _amount(len(group.modules))]
    for statistic in statistics:
        row += [] if statistic.is_mean else [_amount(group.baseline(statistic))]
        row += [_change(group.change(statistic, policy)) for policy in group.policies]
    return row


def _modules(scored: Scored) -> str:
    totals = [each for each in scored.statistics() if not each.is_mean]
    has_oracle = any(each.oracle_text_bytes is not None for each in scored.modules)
    headings = ["module", "package", "language"]
    headings += [f"decisions, {policy}" for policy in scored.policies]
    for statistic in totals:
        headings += [f"{statistic.title}, {BASELINE}"]
        headings += [f"{statistic.title}, {policy}" for policy in scored.policies]
    headings += ["text, search oracle"] if has_oracle else []
    rows: list[list[Cell | str]] = [
        [each.module, each.package, each.language]
        + [_amount(each.decisions[policy]) for policy in scored.policies]
        for each in scored.modules
    ]
    for statistic in totals:
        baselines = scored.values(statistic.key, BASELINE)
        for row, baseline in zip(rows, baselines, strict=True):
            row.append(_amount(baseline))
        for policy in scored.policies:
            values = scored.values(statistic.key, policy)
            for row, value, baseline in zip(rows, values, baselines, strict=True):
                row.append(_ratio(value, baseline))
    if has_oracle:
        for row, scores in zip(rows, scored.modules, strict=True):
            row.append(_oracle(scores))
    return as_table(headings, rows)


def _oracle(scores: ModuleScores) -> Cell:
    if scores.oracle_text_bytes is None:
        return Cell("", 1.0)
    return _ratio(scores.oracle_text_bytes, scores.code[BASELINE].text_bytes)


def _worse(scored: Scored, policy: str) -> str:
    headings = ("module", "package", BASELINE, policy, "more", "change")
    rows: list[list[Cell | str]] = [
        [
            each.scores.module,
            each.scores.package,
            _amount(each.baseline),
            _amount(each.value),
            _amount(each.value - each.baseline),
            _ratio(each.value, each.baseline),
        ]
        for each in scored.worse(policy)
    ]
    return as_table(headings, rows) if rows else "<p>None.</p>"


def _amount(value: float) -> Cell:
    return Cell(f"{value:,.0f}", float(value))


def _ratio(value: float, baseline: float) -> Cell:
    return _change(Change(float(value / baseline - 1) if baseline else 0.0, None))


def _change(change: Change) -> Cell:
    text = percent(change.value)
    kind = {"+": "worse", "-": "better"}.get(text[0], "")
    ends = [percent(each).removesuffix(" %") for each in change.interval or ()]
    return Cell(text, change.value, kind, f"[{', '.join(ends)}]" if ends else "")

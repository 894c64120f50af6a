"""``mlgo-gym size-report``: the code of two builds compared."""

from __future__ import annotations

import argparse
import html
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from rich.table import Table

from corpus_tools.command_line import whole
from mlgo_gym.cli._writing import writing
from mlgo_gym.cli.show._output import Output
from mlgo_gym.cli.show._page import Cell, as_page
from mlgo_gym.cli.show._page import as_table as html_table
from mlgo_gym.objects._builds import BuildComparison, Change, compare_builds, total

DESCRIPTION = (
    "Compare the code in the ELF objects, programs and libraries of two builds: by file, and by "
    "function where symbols allow."
)
EXAMPLE = "mlgo-gym size-report build-plain build-model --html report.html"

_SHOWN: Final = 20
_TOTAL: Final = "total"


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("before", type=Path, metavar="BUILD_A", help="a folder, or one file")
    parser.add_argument("after", type=Path, metavar="BUILD_B", help="the other")
    parser.add_argument("--html", type=Path, metavar="FILE", help="write a page with a chart")
    parser.add_argument(
        "--functions",
        type=whole(0),
        default=_SHOWN,
        metavar="N",
        help=f"show the N functions that changed most (default: {_SHOWN})",
    )


def run(options: argparse.Namespace, output: Output) -> int:
    """Run the subcommand."""
    result = compare_builds(options.before, options.after)
    if options.html:
        page = as_html(result, str(options.before), str(options.after), options.functions)
        with writing(options.html) as file:
            file.write(page)
    for title, changes in _parts(result, options.functions):
        if changes:
            output.print(_table(title, changes))
    output.json(result.to_json())
    return 0


def as_html(result: BuildComparison, before: str, after: str, functions: int = _SHOWN) -> bytes:
    """The comparison as a page that needs nothing else: tables, and a bar for each change."""
    sections = (
        (title, f"{_chart(changes)}{_html_table(changes)}")
        for title, changes in _parts(result, functions)
        if changes
    )
    return as_page(
        f"Code of {before} and {after}", f"Bytes of code; negative is smaller in {after}.", sections
    )


def _parts(result: BuildComparison, functions: int) -> list[tuple[str, Sequence[Change]]]:
    return [
        ("objects", _with_total(result.objects)),
        ("linked", result.linked),
        ("functions that changed most", result.functions[:functions]),
    ]


def _with_total(changes: Sequence[Change]) -> Sequence[Change]:
    return (*changes, total(changes)) if changes else ()


def _cells(change: Change) -> tuple[str, str, str, str]:
    before, after = (
        "none" if each is None else f"{each:,}" for each in (change.before, change.after)
    )
    ratio = "" if not change.before or change.after is None else _percent(change)
    return change.name, before, after, ratio


def _percent(change: Change) -> str:
    return f"{100 * change.difference / (change.before or 1):+.1f} %"


def _table(title: str, changes: Sequence[Change]) -> Table:
    table = Table(title, "before", "after", "change")
    for column in table.columns[1:]:
        column.justify = "right"
        column.no_wrap = True
    table.columns[0].overflow = "fold"
    for change in changes:
        table.add_row(*_cells(change))
    return table


def _html_table(changes: Sequence[Change]) -> str:
    headings = ("name", "before", "after", "change")
    rows = [_html_cells(each) for each in changes if each.name != _TOTAL]
    sums = [_html_cells(each) for each in changes if each.name == _TOTAL]
    return html_table(headings, rows, *sums)


def _html_cells(change: Change) -> list[Cell]:
    numbers = (change.before, change.after, change.difference / (change.before or 1))
    name, *texts = _cells(change)
    pairs = zip(texts, numbers, strict=True)
    return [Cell(name), *(Cell(text, -1.0 if each is None else each) for text, each in pairs)]


def _chart(changes: Sequence[Change]) -> str:
    """Bars of the differences in bytes, left and right of a middle line, as inline SVG."""
    shown = [each for each in changes if each.difference and each.name != _TOTAL]
    shown = sorted(shown, key=lambda each: each.difference)
    widest = max((abs(each.difference) for each in shown), default=1)
    height = 18 * len(shown)
    bars = []
    for row, change in enumerate(shown):
        width = 300 * abs(change.difference) / widest
        left, colour = (300 - width, "#2a7") if change.difference < 0 else (300, "#c43")
        words = html.escape(f"{change.name}  {change.difference:+,}")
        bars.append(
            f'<rect x="{left:.1f}" y="{18 * row + 2}" width="{width:.1f}" height="14" '
            f'fill="{colour}"/><text x="610" y="{18 * row + 14}">{words}</text>'
        )
    return (
        f'<svg width="1200" height="{height}" font-family="monospace" font-size="12">'
        f'{"".join(bars)}<line x1="300" x2="300" y1="0" y2="{height}" stroke="#000"/></svg>'
    )

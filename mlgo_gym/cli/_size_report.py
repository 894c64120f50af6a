"""``mlgo-gym size-report``: the code of two builds compared."""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from corpus_tools.command_line import whole
from mlgo_gym.cli._writing import writing
from mlgo_gym.cli.show._grid import Cell, Grid, Row, amount, ratio
from mlgo_gym.cli.show._output import Output
from mlgo_gym.cli.show._page import as_page
from mlgo_gym.objects._builds import BuildComparison, Change, compare_builds, total

DESCRIPTION = (
    "Compare the code in the ELF objects, programs and libraries of two builds: by file, and by "
    "function where symbols allow."
)
EXAMPLE = "mlgo-gym size-report build-plain build-model --html report.html"

_SHOWN: Final = 20


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("before", type=Path, metavar="BUILD_A", help="a folder, or one file")
    parser.add_argument("after", type=Path, metavar="BUILD_B", help="the other")
    parser.add_argument("--html", type=Path, metavar="FILE", help="write a page of it, with bars")
    parser.add_argument(
        "--functions",
        type=whole(0),
        default=_SHOWN,
        metavar="N",
        help=f"show the N functions that changed most (default: {_SHOWN})",
    )


def run(options: argparse.Namespace, output: Output) -> int:
    """Run the command."""
    result = compare_builds(options.before, options.after)
    grids = _grids(result, options.functions)
    if options.html:
        before, after = str(options.before), str(options.after)
        introduction = f"Bytes of code; negative is smaller in {after}."
        sections = [(title, [grid]) for title, grid in grids.items()]
        with writing(options.html) as file:
            file.write(as_page(f"Code of {before} and {after}", introduction, sections))
    output.print(*grids.values())
    output.json(result.to_json())
    return 0


def _grids(result: BuildComparison, functions: int) -> dict[str, Grid]:
    """What there is to show, by its title."""
    grids = {
        "objects": _grid("objects", result.objects, total(result.objects)),
        "linked": _grid("linked", result.linked),
        "functions": _grid("functions that changed most", result.functions[:functions]),
    }
    return {title: grid for title, grid in grids.items() if grid.rows}


def _grid(title: str, changes: Sequence[Change], footer: Change | None = None) -> Grid:
    widest = max((abs(each.difference) for each in changes), default=0)
    rows = [_cells(each, each.difference / widest if widest else 0.0) for each in changes]
    sums = _cells(footer, 0.0) if footer else ()
    return Grid((title, "before", "after", "change"), rows, sums, folds=True)


def _cells(change: Change, bar: float) -> Row:
    before, after = change.before, change.after
    sizes = [Cell("none", -1.0) if each is None else amount(each) for each in (before, after)]
    if before is None or after is None:
        return [change.name, *sizes, Cell("", math.inf if before is None else -1.0, bar=bar)]
    return [change.name, *sizes, ratio(after, before, bar=bar)]

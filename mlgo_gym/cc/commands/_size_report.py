"""``mlgo-gym size-report``: the code of two builds compared."""

from __future__ import annotations

import argparse
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Final

from corpus_tools.command_line import whole
from mlgo_gym.cli import Cell, Grid, Output, Row, amount, ratio, source_name, writing
from mlgo_gym.cli import options as shared

if TYPE_CHECKING:
    from mlgo_gym.cc._builds import BuildComparison, Change, KeptObjects

DESCRIPTION = (
    "Compare the code in the ELF objects, programs and libraries of two builds, all that sections "
    "hold that are executable: by file, and by function where symbols allow."
)
EXAMPLE = "mlgo-gym size-report build-plain build-model --html report.html"

_KEPT: Final = "what was kept, by .text sections"
"""The driver compares these; all else here counts every section that is executable."""


def add_options(add: shared.Options) -> None:
    add("before", "BUILD_A", "a folder, or one file")
    add("after", "BUILD_B", "the other")
    add("--kept", "FILE", "show what 'mlgo-cc --mlgo-keep-smaller' kept, by its log")
    add.file("--html", "write a page of it, with bars")
    add("--functions", "N", "show the N functions that changed most", 20, type=whole(0))


def run(options: argparse.Namespace, output: Output) -> int:
    from mlgo_gym.cc._builds import compare_builds, read_kept_log, total
    from mlgo_gym.cli import as_page

    kept = read_kept_log(options.kept) if options.kept else []
    result = compare_builds(options.before, options.after)
    shown = {
        _KEPT: _kept(kept),
        "objects": _grid("objects", result.objects, total(result.objects)),
        "linked": _grid("linked", result.linked),
        "functions": _grid(
            "functions that changed most", [*map(_named, result.functions[: options.functions])]
        ),
    }
    grids = {title: grid for title, grid in shown.items() if grid.rows}
    output.print(*grids.values())
    if not_counted := _not_counted(result):
        output.print(not_counted)
    output.json(result.to_json() | {"kept": [asdict(each) for each in kept]})
    if options.html:
        before, after = str(options.before), str(options.after)
        introduction = f"Bytes of code; negative is smaller in {after}. {not_counted}".rstrip()
        sections = [(title, [grid]) for title, grid in grids.items()]
        with writing(options.html) as file:
            file.write(as_page(f"Code of {before} and {after}", introduction, sections))
    return output.warn_of(_broken(options, result))


def _not_counted(result: BuildComparison) -> str:
    """A sentence on files that hold code that is not counted."""
    from mlgo_gym.cc._builds import LeftOut

    counts = [Counter(files.values()) for files in result.left_out]
    kinds = [kind for kind in LeftOut if kind in counts[0] or kind in counts[1]]
    parts = (f"{kind} ({counts[0][kind]:,} before, {counts[1][kind]:,} after)" for kind in kinds)
    return f"Not counted: {', '.join(parts)}." if kinds else ""


def _broken(options: argparse.Namespace, result: BuildComparison) -> Iterator[str]:
    from mlgo_gym.cc._builds import LeftOut

    for build, files in zip((options.before, options.after), result.left_out, strict=True):
        for name, kind in files.items():
            if kind is LeftOut.BROKEN:
                yield f"{build / name}: left out: an ELF file that cannot be read"


def _kept(kept: Sequence[KeptObjects]) -> Grid:
    rows: list[Row] = [
        [
            each.kept,
            amount(each.objects),
            amount(each.clang_bytes),
            amount(each.kept_bytes),
            ratio(each.kept_bytes, each.clang_bytes),
        ]
        for each in kept
    ]
    return Grid((_KEPT, "objects", "clang's own", "kept", "change"), rows, folds=True)


def _named(change: Change) -> Change:
    file, _, symbol = change.name.rpartition(": ")
    return replace(change, name=f"{file}: {source_name(symbol)}")


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

"""Grids: tables that terminals and pages show alike, and what names and changes look like."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, Final

from corpus_tools.printable import printable

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions
    from rich.table import Table
    from rich.text import Text

_SHORTEST_NAME: Final = 12
_NARROW: Final = 7
_ZERO_BAND: Final = 0.00005
_LARGE: Final = 0.1
_COLOURS: Final = {"better": "green", "worse": "red"}


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell of a grid; rows are sorted by the value, or by the text where that is ``None``.

    The kind is ``better`` or ``worse``, which have colours, or empty; the note is shown fainter. A
    bar behind it, on pages only, goes from -1, to the left, to 1; 0 is none. There a click on the
    text leads to the anchor of a listing, if one is named. Text of several lines says so: names,
    which may be anybody's, have none.
    """

    text: str
    value: float | None = None
    kind: str = ""
    note: str = ""
    bar: float = 0.0
    anchor: str = ""
    has_lines: bool = False

    def to_text(self) -> Text:
        from rich.text import Text

        unchanged = "\n" if self.has_lines else ""
        text = Text(printable(self.text, unchanged), style=_COLOURS.get(self.kind, ""))
        return text.append(f" {printable(self.note)}", style="dim") if self.note else text


Row = list[Cell | str]
"""A row of a grid; text is as good as a cell."""


@dataclass(frozen=True, slots=True)
class Grid:
    """A table whose first column has names and whose others have numbers; a footer sums up.

    Where it would be too wide for a terminal, headings are broken into lines, and then names lose
    their beginnings or, if it folds, are broken, too; numbers never lose anything. A terminal that
    is narrower still breaks its lines.
    """

    headings: Sequence[str]
    rows: Sequence[Sequence[Cell | str]] = ()
    footer: Sequence[Cell | str] = ()
    folds: bool = False

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Table]:
        from rich.table import Table

        rows = (*self.rows, self.footer or [""] * len(self.headings))
        cells = ([as_cell(each).to_text() for each in row] for row in rows)
        first, *columns = zip(*cells, strict=True)
        names = [each.plain for each in first[:-1]]
        names = names if self.folds else short_names(names)
        headings, left = self._fitting(columns, options.max_width, names)
        table = Table(show_footer=bool(self.footer))
        table.add_column(printable(self.headings[0]), first[-1], overflow="fold")
        for heading, column in zip(headings, columns, strict=True):
            table.add_column(heading, column[-1], justify="right", no_wrap=True)
        for place, name in enumerate(names):
            shown = name if self.folds else cut(name, left)
            table.add_row(shown, *(column[place] for column in columns))
        keep_whole(table, console)
        yield table

    def _fitting(
        self, columns: Sequence[Sequence[Text]], width: int, names: Sequence[str]
    ) -> tuple[list[str], int]:
        """Headings, broken if names need their room, and how much of it is left for names."""
        from rich.text import Text

        headings, left = [*map(printable, self.headings[1:])], 0
        for _ in range(2):
            taken = [
                max(each.cell_len for each in (*column, *Text(heading).split()))
                for heading, column in zip(headings, columns, strict=True)
            ]
            left = width - len("│  │") - sum(each + len("  │") for each in taken)
            if left >= max(map(len, [*names, self.headings[0]])):
                break
            headings = [textwrap.fill(each, _NARROW, break_long_words=False) for each in headings]
        return headings, max(left, _SHORTEST_NAME)


def amount(value: float) -> Cell:
    """A number without a fraction."""
    return Cell(f"{value:,.0f}", float(value))


def change(value: float, interval: tuple[float, float] | None = None, *, bar: float = 0.0) -> Cell:
    """A change as a share: -0.01 is 1 % less, which is better; with its interval, if given."""
    text = percent(value)
    kind = {"+": "worse", "-": "better"}.get(text[0], "")
    ends = [percent(each).removesuffix(" %") for each in interval or ()]
    return Cell(text, value, kind, f"[{', '.join(ends)}]" if ends else "", bar)


def ratio(value: float, baseline: float, *, bar: float = 0.0) -> Cell:
    """A value's change against a baseline; ``new`` where that is 0 and the value is not."""
    if not baseline and value:
        return Cell("new", float("inf"), "worse", bar=bar)
    return change(float(value) / float(baseline) - 1 if baseline else 0.0, bar=bar)


def percent(value: float) -> str:
    """A change as text; a large one has one digit less.

    >>> percent(-0.0125), percent(0.387), percent(math.nan)
    ('-1.25 %', '+38.7 %', 'none')
    """
    if math.isnan(value):
        return "none"
    if abs(value) < _ZERO_BAND:
        return "0.00 %"
    return f"{100 * value:+.{1 if abs(value) >= _LARGE else 2}f} %"


def short_names(names: Sequence[str]) -> list[str]:
    """The names without the folders that all of them start with.

    >>> short_names(["src/lua/lapi.c", "src/lua/lib/lgc.c"])
    ['lapi.c', 'lib/lgc.c']
    """
    folders = [PurePosixPath(name).parent.parts for name in names]
    levels = takewhile(lambda level: len(set(level)) == 1, zip(*folders, strict=False))
    common = sum(1 for _ in levels)
    return [str(PurePosixPath(*PurePosixPath(name).parts[common:])) for name in names]


def cut(name: str, width: int) -> str:
    """A name without its beginning, where it would be longer than so many characters."""
    return name if len(name) <= width else f"…{name[len(name) - width + 1 :]}"


def narrow_table(columns: Sequence[str], *, right: Collection[str]) -> Table:
    """An empty table without lines between columns; only the last is wrapped, numbers are right."""
    from rich import box
    from rich.table import Column, Table

    class Escaping(Table):
        def add_row(self, *cells: Any, **settings: Any) -> None:
            """Add a row; text, which may be anybody's, is one line, unless it is rich's."""
            shown = (printable(each) if isinstance(each, str) else each for each in cells)
            super().add_row(*shown, **settings)

    heads = [
        Column(
            printable(each),
            justify="right" if each in right else "left",
            no_wrap=each != columns[-1],
        )
        for each in columns
    ]
    return Escaping(*heads, box=box.SIMPLE, show_edge=False, padding=(0, 1, 0, 0), pad_edge=False)


def keep_whole(table: Table, console: Console) -> None:
    """Have a table be wider than a terminal rather than cut its numbers or lose its names."""
    needed = len("│")
    for column in table.columns:
        cells = [column.header, *column.cells, column.footer]
        widest = max(console.measure(each).maximum for each in cells)
        least = widest if column.justify == "right" else min(widest, _SHORTEST_NAME)
        column.min_width = least
        needed += least + len("  │")
    if needed > console.width:
        table.width = needed


def as_cell(cell: Cell | str) -> Cell:
    return cell if isinstance(cell, Cell) else Cell(cell)

"""Pages that need nothing else: one HTML file with grids, whose rows a click sorts, and more.

Plots are in it, and texts that a click unfolds; on paper all are unfolded.
"""

from __future__ import annotations

import base64
import html
import io
import re
from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Final, TypeAlias
from urllib.parse import quote

from corpus_tools.printable import printable
from mlgo_gym.base import read_bounded
from mlgo_gym.cli.show._grid import Cell, Grid, as_cell
from mlgo_gym.cli.show._listing import Listing, Text

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Content: TypeAlias = "Grid | Figure | Listing | Text | str"
"""The part below a heading."""
Section: TypeAlias = "tuple[str, Sequence[Content]]"
"""A heading, and what stands below it."""

_DPI: Final = 110
_BETTER: Final = "#cfe8dc"
_WORSE: Final = "#f3d3cf"
_LONG_WORD: Final = re.compile(r"([^\s-]{16})(?=[^\s-])")
_PAGE: Final = Path(__file__).with_name("page.html")
_MAX_BYTES: Final = 1 << 16


def as_page(title: str, introduction: str, sections: Iterable[Section]) -> bytes:
    """A page, of plain texts, and for each heading what stands below it."""
    sections = list(sections)
    anchors = {
        each.anchor
        for _, contents in sections
        for each in contents
        if isinstance(each, Listing | Text)
    }
    parts = "".join(
        f"<h2>{_escaped(heading)}</h2>{''.join(_part(each, anchors) for each in contents)}"
        for heading, contents in sections
    )
    title, introduction = _escaped(title), _escaped(introduction)
    page = Template(read_bounded(_PAGE, _MAX_BYTES).decode())
    filled = page.substitute(title=title, introduction=introduction, sections=parts)
    return filled.encode("utf-8", "backslashreplace")


def _part(content: Content, anchors: AbstractSet[str]) -> str:
    if isinstance(content, str):
        return f"<p>{_escaped(content)}</p>"
    if isinstance(content, Grid):
        return _table(content, anchors)
    if isinstance(content, Text):
        return _unfolding(content, f"<pre>{_escaped(content.text)}</pre>")
    if isinstance(content, Listing):
        lines = "".join(map(_line, content.rows))
        return _unfolding(content, f'<table class="listing"><tbody>{lines}</tbody></table>')
    file = io.BytesIO()
    content.savefig(file, format="png", dpi=_DPI)
    data = base64.b64encode(file.getvalue()).decode("ascii")
    return f'<p><img alt="plot" src="data:image/png;base64,{data}"></p>'


def _unfolding(content: Listing | Text, inner: str) -> str:
    anchor = f' id="{_escaped(content.anchor)}"' if content.anchor else ""
    return f"<details{anchor}><summary>{_escaped(content.title)}</summary>{inner}</details>"


def _line(row: tuple[Cell, str, str]) -> str:
    margin, number, line = row
    kind = f' class="{margin.kind}"' if margin.kind else ""
    text = _escaped(line.lstrip(" "))
    indent = "&nbsp;" * (len(line) - len(line.lstrip(" ")))  # texts of pages keep it
    cells = f"{_breakable(margin.text)}</td><td>{number}</td><td>{indent}{text}"
    return f"<tr><td{kind}>{cells}</td></tr>"


def _table(grid: Grid, anchors: AbstractSet[str]) -> str:
    head = "".join(f"<th>{_escaped(each)}</th>" for each in grid.headings)
    body = "".join(_row(row, anchors) for row in grid.rows)
    foot = f"<tfoot>{_row(grid.footer, anchors)}</tfoot>" if grid.footer else ""
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody>{foot}</table>"


def _row(cells: Sequence[Cell | str], anchors: AbstractSet[str]) -> str:
    return f"<tr>{''.join(_cell(as_cell(each), anchors) for each in cells)}</tr>"


def _cell(cell: Cell, anchors: AbstractSet[str]) -> str:
    number = "" if cell.value is None else repr(cell.value).replace("inf", "Infinity")
    value = f' data-value="{number}"' if number else ""
    kind = f' class="{cell.kind}"' if cell.kind else ""
    note = f" <small>{_breakable(cell.note)}</small>" if cell.note else ""
    text = _breakable(cell.text)
    if cell.anchor in anchors - {""}:
        text = f'<a href="#{quote(printable(cell.anchor))}">{text}</a>'
    return f"<td{kind}{value}{_bar(cell.bar)}>{text}{note}</td>"


def _breakable(text: str) -> str:
    """Text whose long words, which symbols are, may be broken anywhere."""
    parts = _LONG_WORD.split(text)
    return "<wbr>".join(_escaped(each) for each in parts if each)


def _escaped(text: str) -> str:
    return html.escape(printable(text, "\n\t"))


def _bar(length: float) -> str:
    """A bar behind a cell's text, left or right of its middle."""
    if not length:
        return ""
    start, end = sorted((50.0, 50 + 50 * length))
    colour = _BETTER if length < 0 else _WORSE
    stops = f"#0000 {start:.1f}%,{colour} {start:.1f}% {end:.1f}%,#0000 {end:.1f}%"
    return f' style="background:linear-gradient(90deg,{stops})"'

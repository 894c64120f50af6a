"""Pages that need nothing else: one HTML file with tables, whose rows a click sorts, and charts."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

_PAGE: Final = """\
<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title>
<style>
body {{ font: 15px sans-serif; margin: 2em; }}
table {{ border-collapse: collapse; margin-bottom: 2em; }}
td, th {{ padding: 2px 10px; text-align: right; }}
td {{ white-space: nowrap; }}
td small {{ display: block; color: #666; }}
tfoot {{ font-weight: bold; border-top: 1px solid #888; }}
td:first-child, th:first-child {{ text-align: left; font-family: monospace; }}
tr:nth-child(even) {{ background: #f4f4f4; }}
th {{ cursor: pointer; vertical-align: bottom; }}
th[data-order="1"]::after {{ content: " \\25B2"; }}
th[data-order="-1"]::after {{ content: " \\25BC"; }}
td.better {{ color: #176; }}
td.worse {{ color: #b22; }}
img {{ max-width: 100%; }}
</style></head><body>
<h1>{title}</h1>
<p>{introduction}</p>
{sections}
<script>
const key = (row, column) => {{
  const cell = row.cells[column];
  return "value" in cell.dataset ? Number(cell.dataset.value) : cell.textContent;
}};
const compare = (a, b) => typeof a === "number" && typeof b === "number"
  ? a - b : String(a).localeCompare(String(b), "en", {{ numeric: true }});
for (const head of document.querySelectorAll("th")) {{
  head.addEventListener("click", () => {{
    const order = head.dataset.order === "1" ? -1 : 1;
    for (const other of head.parentNode.cells) delete other.dataset.order;
    head.dataset.order = order;
    const body = head.closest("table").tBodies[0];
    const rows = [...body.rows].sort((one, two) =>
      order * compare(key(one, head.cellIndex), key(two, head.cellIndex)));
    body.append(...rows);
  }});
}}
</script>
</body></html>
"""


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell of a table.

    Attributes:
        text: what is shown.
        value: the number that rows are sorted by; ``None`` sorts by the text.
        kind: ``better`` or ``worse``, which have colours, or empty.
        note: shown below, smaller.
    """

    text: str
    value: float | None = None
    kind: str = ""
    note: str = ""

    def to_html(self) -> str:
        """The cell as HTML."""
        value = "" if self.value is None else f' data-value="{self.value!r}"'
        kind = f' class="{self.kind}"' if self.kind else ""
        note = f"<small>{html.escape(self.note)}</small>" if self.note else ""
        return f"<td{kind}{value}>{html.escape(self.text)}{note}</td>"


def as_page(title: str, introduction: str, sections: Iterable[tuple[str, str]]) -> bytes:
    """A page.

    Args:
        title: plain text.
        introduction: plain text.
        sections: headings, in plain text, and what is below each, in HTML.
    """
    parts = (f"<h2>{html.escape(heading)}</h2>{content}" for heading, content in sections)
    page = _PAGE.format(
        title=html.escape(title), introduction=html.escape(introduction), sections="".join(parts)
    )
    return page.encode("utf-8", "backslashreplace")


def as_table(
    headings: Sequence[str],
    rows: Iterable[Sequence[Cell | str]],
    footer: Sequence[Cell | str] = (),
) -> str:
    """A table as HTML; clicking at a heading sorts the rows by it.

    Args:
        headings: of the columns.
        rows: their cells.
        footer: the cells of a last row, which stays where it is.
    """
    head = "".join(f"<th>{html.escape(each)}</th>" for each in headings)
    body = "".join(_row(row) for row in rows)
    foot = f"<tfoot>{_row(footer)}</tfoot>" if footer else ""
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody>{foot}</table>"


def _row(cells: Sequence[Cell | str]) -> str:
    made = (each if isinstance(each, Cell) else Cell(each) for each in cells)
    return f"<tr>{''.join(each.to_html() for each in made)}</tr>"

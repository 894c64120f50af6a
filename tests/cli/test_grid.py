"""Grids: what fits into 80 columns, and how pages show the same."""

from __future__ import annotations

import math
from io import StringIO

import pytest
from rich.console import Console

from mlgo_gym.cli.show._grid import Cell, Grid, Row, amount, change, narrow_table, ratio
from mlgo_gym.cli.show._page import as_page

NAMES = [f"package/src/interval_tree_{number}.cpp" for number in range(3)]


def printed(grid: Grid, width: int = 80) -> list[str]:
    file = StringIO()
    Console(width=width, file=file).print(grid, crop=False)
    return file.getvalue().splitlines()


def grid(*policies: str) -> Grid:
    rows: list[Row] = [[name, amount(1225), *(change(0.387) for _ in policies)] for name in NAMES]
    return Grid(("module", "decisions", *policies), rows, ["total", *rows[0][1:]])


def test_folders_that_all_have_are_left_out() -> None:
    lines = printed(grid("never"))
    assert any(line.startswith("│ interval_tree_0.cpp │     1,225 │ +38.7 % │") for line in lines)
    assert not any("package/src" in line for line in lines)


@pytest.mark.parametrize("width", [60, 80, 100])
def test_headings_give_way_before_names(width: int) -> None:
    lines = printed(grid("lowest-density", "search-oracle"), width)
    assert max(map(len, lines)) <= width
    assert sum("interval_tree_" in line for line in lines) == len(NAMES)
    assert any("lowest-density" in line for line in lines) == (width >= 80)


def test_names_give_way_before_numbers() -> None:
    lines = printed(grid("never", "always"), 45)
    assert max(map(len, lines)) <= 50
    assert sum("…" in line and line.endswith("│ +38.7 % │ +38.7 % │") for line in lines) == 3


@pytest.mark.parametrize(
    ("value", "baseline", "text", "kind"),
    [
        (88, 100, "-12.0 %", "better"),
        (99, 100, "-1.00 %", "better"),
        (101, 100, "+1.00 %", "worse"),
        (100, 100, "0.00 %", ""),
        (0, 0, "0.00 %", ""),
        (3, 0, "new", "worse"),
    ],
)
def test_changes(value: float, baseline: float, text: str, kind: str) -> None:
    cell = ratio(value, baseline)
    assert (cell.text, cell.kind) == (text, kind)
    assert cell.value == (math.inf if text == "new" else value / (baseline or 1) - bool(baseline))


def test_a_page_shows_the_same() -> None:
    rows: list[Row] = [
        ["<b>", ratio(3, 0, bar=1.0), change(-0.5, (-0.6, -0.4))],
        ["b", "text", Cell("x")],
    ]
    page = as_page("A & B", "<i>", [("first <", [Grid(("name", "new", "change"), rows)])]).decode()
    assert "<h1>A &amp; B</h1>\n<p>&lt;i&gt;</p>" in page
    assert "<h2>first &lt;</h2><table>" in page
    assert "<td>&lt;b&gt;</td>" in page
    assert ' class="worse" data-value="Infinity" style="background:linear-gradient(' in page
    assert 'data-value="-0.5">-50.0 % <small>[-60.0, -40.0]</small></td>' in page


def test_a_name_of_several_lines_is_one() -> None:
    """It may be anybody's; what has lines says so."""
    named = Grid(("a\nb", "c\nd"), [["e\nf", "g\nh"]])
    for each in ("a\\nb", "c\\nd", "e\\nf", "g\\nh"):
        assert sum(each in line for line in printed(named)) == 1
    assert len(printed(named)) == len(printed(Grid(("a", "c"), [["e", "g"]])))
    lines = printed(Grid(("a", "c"), [["e", Cell("g\nh", has_lines=True)]]))
    assert len(lines) == len(printed(named)) + 1


def test_a_name_of_several_lines_in_a_narrow_table() -> None:
    table = narrow_table(("a\nb", "c"), right=("c",))
    table.add_row("d\ne", "1")
    file = StringIO()
    Console(width=80, file=file).print(table)
    heading, _, row = file.getvalue().splitlines()
    assert (heading.split(), row.split()) == (["a\\nb", "c"], ["d\\ne", "1"])

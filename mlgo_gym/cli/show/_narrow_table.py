"""A table without lines between its columns, so that many of them fit into 80 characters."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from rich import box
from rich.console import JustifyMethod
from rich.table import Table


def narrow_table(columns: Sequence[str], *, right: Collection[str]) -> Table:
    """An empty table.

    Args:
        columns: their heads; only the cells of the last one are wrapped.
        right: the heads of those that are numbers.
    """
    table = Table(box=box.SIMPLE, show_edge=False, padding=(0, 1, 0, 0), pad_edge=False)
    for column in columns:
        justify: JustifyMethod = "right" if column in right else "left"
        table.add_column(column, justify=justify, no_wrap=column != columns[-1])
    return table

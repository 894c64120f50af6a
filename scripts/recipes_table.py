"""Tables of recipes and of workloads in the documentation.

``python -m scripts.recipes_table PAGE...`` replaces, in Markdown pages, what stands between
the lines that begin and end a table; `TABLES` has the first of each.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

from corpus_tools.recipes import Recipe, available_recipes, load_recipe
from corpus_tools.workloads import load_workloads, shipped_workloads

END: Final = "<!-- end of table -->\n"

_SPLITS: Final = ("train", "test", "final")
_HEAD = "| recipe | package | split | language | modules | license |\n|---|---|---|---|--:|---|\n"
_WORKLOADS = "| recipe | split | workload | what it does |\n|---|---|---|---|\n"


def recipes_table() -> str:
    """Return the table of the recipes that ship, in Markdown."""
    recipes = [load_recipe(name) for name in available_recipes()]
    rows = "".join(map(_row, recipes))
    return f"{_HEAD}{rows}\n{_summary(recipes)}\n"


def workloads_table() -> str:
    """Return the table of the workloads that ship with recipes, in Markdown."""
    rows, counts = "", {split: [0, 0] for split in _SPLITS}
    for recipe in map(load_recipe, available_recipes()):
        workloads = load_workloads(shipped_workloads(recipe.name))
        counts[recipe.split][0] += len(workloads)
        counts[recipe.split][1] += bool(workloads)
        for each in workloads:
            rows += f"| `{recipe.name}` | {recipe.split} | `{each.name}` | {each.about} |\n"
    parts = [
        f"{programs} programs of {packages} packages in the {split} split"
        for split, (programs, packages) in counts.items()
        if packages
    ]
    return f"{_WORKLOADS}{rows}\n{_joined(parts)}.\n"


TABLES: Final[Mapping[str, Callable[[], str]]] = MappingProxyType(
    {
        "<!-- table of recipes: make recipes-table -->\n": recipes_table,
        "<!-- table of workloads: make recipes-table -->\n": workloads_table,
    }
)
"""The line that begins a table, and what it is made of."""


def with_tables(page: str) -> str:
    """Return a page with its tables brought up to date.

    Raises:
        ValueError: the page has no place for a table.
    """
    found = [begin for begin in TABLES if begin in page]
    is_whole = all(END in page.partition(begin)[2] for begin in found)
    if not found or not is_whole or page.count(END) != len(found):
        raise ValueError(f"page: expected lines of {list(TABLES)} and {END!r}, found no such lines")
    for begin in found:
        before, _, rest = page.partition(begin)
        _, _, after = rest.partition(END)
        page = f"{before}{begin}{TABLES[begin]()}{END}{after}"
    return page


def _row(recipe: Recipe) -> str:
    modules = "" if recipe.modules is None else str(recipe.modules)
    package = f"{recipe.package} {recipe.version}"
    cells = (f"`{recipe.name}`", package, recipe.split, recipe.language, modules, recipe.license)
    return f"| {' | '.join(cells)} |\n"


def _summary(recipes: list[Recipe]) -> str:
    parts = []
    for split in _SPLITS:
        if chosen := [recipe for recipe in recipes if recipe.split == split]:
            modules = sum(recipe.modules or 0 for recipe in chosen)
            parts.append(f"{len(chosen)} recipes with {modules:,} modules in the {split} split")
    return f"{_joined(parts)}."


def _joined(parts: list[str]) -> str:
    return " and ".join(filter(None, [", ".join(parts[:-1]), *parts[-1:]]))


if __name__ == "__main__":
    for page in map(Path, sys.argv[1:]):
        page.write_text(with_tables(page.read_text(encoding="utf-8")), encoding="utf-8")

"""The table of recipes in the documentation: ``python -m corpus_tools.recipes_table PAGE``.

Replaces what stands between the lines BEGIN and END of a Markdown page.
"""

from __future__ import annotations

import sys
from pathlib import Path

from corpus_tools.recipes import Recipe, available_recipes, load_recipe

BEGIN = "<!-- table of recipes: make recipes-table -->\n"
END = "<!-- end of table -->\n"

_HEAD = "| recipe | package | split | language | modules | license |\n|---|---|---|---|--:|---|\n"


def recipes_table() -> str:
    """Return the table of the recipes that ship with this package, in Markdown."""
    recipes = [load_recipe(name) for name in available_recipes()]
    rows = "".join(map(_row, recipes))
    return f"{_HEAD}{rows}\n{_summary(recipes)}\n"


def with_table(page: str) -> str:
    """Return a page with its table brought up to date.

    Raises:
        ValueError: the page has no place for the table.
    """
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"page: expected the lines {BEGIN!r} and {END!r}, found no such lines")
    return f"{before}{BEGIN}{recipes_table()}{END}{after}"


def _row(recipe: Recipe) -> str:
    modules = "" if recipe.modules is None else str(recipe.modules)
    package = f"{recipe.package} {recipe.version}"
    cells = (f"`{recipe.name}`", package, recipe.split, recipe.language, modules, recipe.license)
    return f"| {' | '.join(cells)} |\n"


def _summary(recipes: list[Recipe]) -> str:
    parts = []
    for split in ("train", "test"):
        chosen = [recipe for recipe in recipes if recipe.split == split]
        modules = sum(recipe.modules or 0 for recipe in chosen)
        parts.append(f"{len(chosen)} recipes with {modules:,} modules in the {split} split")
    return f"{' and '.join(parts)}."


if __name__ == "__main__":
    page = Path(sys.argv[1])
    page.write_text(with_table(page.read_text(encoding="utf-8")), encoding="utf-8")

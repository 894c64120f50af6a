"""``mlgo-gym corpus recipes``: which recipes there are."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from corpus_tools.recipes import Recipe, available_recipes, load_recipe
from mlgo_gym.cli.show._grid import narrow_table
from mlgo_gym.cli.show._output import Output

if TYPE_CHECKING:
    from rich.text import Text

DESCRIPTION = "List the recipes: what 'mlgo-gym corpus build NAME' compiles."
EXAMPLE = "mlgo-gym corpus recipes"


def run(_options: argparse.Namespace, output: Output) -> int:
    recipes = [load_recipe(name) for name in available_recipes()]
    columns = ("name", "version", "split", "language", "modules", "license")
    table = narrow_table(columns, right=("modules",))
    for recipe in recipes:
        described = _described(recipe)
        table.add_row(_name(recipe), *(str(described[column]) for column in columns[1:]))
    output.print(table)
    output.json([_described(recipe) for recipe in recipes])
    return 0


def _name(recipe: Recipe) -> Text:
    """The recipe's name, and under it the package's where that is another one."""
    from rich.text import Text

    same = recipe.name == recipe.package
    return Text(recipe.name if same else f"{recipe.name}\n of {recipe.package}")


def _described(recipe: Recipe) -> dict[str, str | int | None]:
    keys = ("name", "package", "version", "split", "language", "license", "modules")
    return {key: getattr(recipe, key) for key in keys}

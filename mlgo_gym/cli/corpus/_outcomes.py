"""What became of the recipes that ``mlgo-gym corpus build`` built: for people and for machines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.table import Table

from corpus_tools.build_all import RecipeOutcome
from mlgo_gym.cli.show._narrow_table import narrow_table


def outcome_table(outcomes: Sequence[RecipeOutcome], elapsed_s: float) -> Table:
    """One line for each recipe, and the total.

    Args:
        outcomes: what was built.
        elapsed_s: seconds that all of it took.
    """
    table = narrow_table(
        ("recipe", "split", "language", "modules", "bitcode, B", "seconds", "outcome"),
        right=("modules", "bitcode, B", "seconds"),
    )
    for each in outcomes:
        table.add_row(
            each.recipe.name,
            each.recipe.split,
            each.recipe.language,
            *_counts(each.modules, each.bitcode_bytes, each.elapsed_s),
            each.status,
        )
    table.add_section()
    modules, size_bytes = _totals(outcomes)
    complete = sum(each.is_complete for each in outcomes)
    counts = _counts(modules, size_bytes, elapsed_s)
    table.add_row("total", "", "", *counts, f"{complete} of {len(outcomes)}")
    return table


def described(outcomes: Sequence[RecipeOutcome], elapsed_s: float) -> dict[str, Any]:
    """The same, for JSON."""
    modules, size_bytes = _totals(outcomes)
    return {
        "recipes": [_described(each) for each in outcomes],
        "total": {"modules": modules, "bitcode_bytes": size_bytes, "elapsed_s": elapsed_s},
    }


def _described(outcome: RecipeOutcome) -> dict[str, Any]:
    return {
        "recipe": outcome.recipe.name,
        "version": outcome.recipe.version,
        "split": outcome.recipe.split,
        "language": outcome.recipe.language,
        "output": str(outcome.output),
        "modules": outcome.modules,
        "bitcode_bytes": outcome.bitcode_bytes,
        "elapsed_s": outcome.elapsed_s,
        "outcome": outcome.status,
        "problems": list(outcome.problems),
    }


def _totals(outcomes: Sequence[RecipeOutcome]) -> tuple[int, int]:
    return sum(each.modules for each in outcomes), sum(each.bitcode_bytes for each in outcomes)


def _counts(modules: int, size_bytes: int, elapsed_s: float) -> tuple[str, str, str]:
    return f"{modules:,}", f"{size_bytes:,}", f"{elapsed_s:.1f}"

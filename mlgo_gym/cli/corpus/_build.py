"""``mlgo-gym corpus build``: corpora from recipes."""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from corpus_tools.clang import OPT_LEVELS, find_clang
from corpus_tools.recipes import Recipe, available_recipes, load_recipe
from mlgo_gym.base import OptionsError
from mlgo_gym.cli import options as shared
from mlgo_gym.cli.show._grid import narrow_table
from mlgo_gym.cli.show._output import Output
from mlgo_gym.corpus import SPLITS

if TYPE_CHECKING:
    from rich.progress import Progress
    from rich.table import Table

    from corpus_tools.build import RecipeOutcome
    from corpus_tools.compilation import Progress as SourceProgress

DESCRIPTION = (
    "Fetch the sources of packages from PyPI, check their hashes, and compile their C and C++ with "
    "clang. One name makes the corpus DIR; several names, or --all, make a corpus DIR/NAME for "
    "each, except where an up-to-date one is there. 'mlgo-gym corpus recipes' lists the recipes."
)
EXAMPLE = "mlgo-gym corpus build lupa --output corpora/lupa"


def add_options(add: shared.Options) -> None:
    add("recipes", "NAME", "a recipe's name, or a recipe file", nargs="*")
    add("--all", "", "every recipe of the package")
    add("--split", SPLITS, "with --all: only recipes of this split")
    add.output("folder for the corpora")
    add("--clang", "PATH", "clang 19 or newer (default: from PATH)")
    add.opt_level(OPT_LEVELS, "Oz")
    add.jobs(os.cpu_count() or 1, executor=True)
    add.folder("--cache", "keep fetched sources there")
    add("--keep-going", "", "leave out sources that do not compile")


def run(options: argparse.Namespace, output: Output) -> int:
    recipes = _selected(options)
    build_options = {
        "clang": find_clang(options.clang),
        "opt_level": options.opt_level,
        "cache_dir": options.cache,
        "keep_going": options.keep_going,
    }
    build = _build_one if len(options.recipes) == 1 else _build_many
    if isinstance(options.jobs, int):
        return build(recipes, options.output, output, jobs=options.jobs, **build_options)
    from mlgo_gym.curation import Builders

    with Builders(options.jobs) as builders:
        return build(recipes, options.output, output, jobs=builders, **build_options)


def _selected(options: argparse.Namespace) -> list[Recipe]:
    if options.all == bool(options.recipes):
        found = "both" if options.all else "neither"
        raise OptionsError(f"recipes to build: expected names or --all, found {found}")
    if options.split and not options.all:
        raise OptionsError("--split: expected --all beside it, found names")
    recipes = [load_recipe(name) for name in options.recipes or available_recipes()]
    return [recipe for recipe in recipes if options.split in {None, recipe.split}]


def _build_one(recipes: list[Recipe], folder: Path, output: Output, **build_options: Any) -> int:
    from corpus_tools.build import build_corpus

    (recipe,) = recipes
    with output.progress() as progress:
        start = _counting(progress)
        report = build_corpus(recipe, folder, progress=start(recipe), **build_options)
    for failure in report.failures:
        output.warn(f"{failure.source}: {failure.reason}")
    output.print(
        f"{recipe.package} {recipe.version}: {len(report.modules)} modules in {report.output} "
        f"({recipe.split} split, {report.elapsed_s:.1f} s)"
    )
    output.json(
        {
            "recipe": recipe.name,
            "version": recipe.version,
            "split": recipe.split,
            "output": str(report.output),
            "modules": list(report.modules),
            "failures": {each.source: each.reason for each in report.failures},
        }
    )
    return 1 if report.failures else 0


def _build_many(recipes: list[Recipe], folder: Path, output: Output, **build_options: Any) -> int:
    from corpus_tools.build import build_all

    start = time.monotonic()
    with output.progress() as progress:
        outcomes = build_all(recipes, folder, progress=_counting(progress), **build_options)
    elapsed_s = time.monotonic() - start
    for outcome in outcomes:
        for problem in outcome.problems:
            output.warn(f"{outcome.recipe.name}: {problem}")
    total = {
        "modules": sum(each.modules for each in outcomes),
        "bitcode_bytes": sum(each.bitcode_bytes for each in outcomes),
        "elapsed_s": elapsed_s,
    }
    records = [_record(each) for each in outcomes]
    complete = sum(each.is_complete for each in outcomes)
    last = total | {"recipe": "total", "outcome": f"{complete} of {len(outcomes)}"}
    output.print(_table(records, last))
    output.json({"recipes": records, "total": total})
    return 0 if complete == len(outcomes) else 1


def _counting(progress: Progress) -> Callable[[Recipe], SourceProgress]:
    """A progress bar that counts the sources of one recipe after the other."""
    task = progress.add_task("building", total=None)

    def start(recipe: Recipe) -> SourceProgress:
        progress.reset(task, description=f"building {recipe.name}", total=recipe.modules)
        return lambda done, total, _: progress.update(task, completed=done, total=total)

    return start


def _record(outcome: RecipeOutcome) -> dict[str, Any]:
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


def _table(records: Sequence[dict[str, Any]], last: dict[str, Any]) -> Table:
    numbers = {"modules": "modules", "bitcode_bytes": "bitcode, B", "elapsed_s": "seconds"}
    names = ("recipe", "split", "language")
    table = narrow_table((*names, *numbers.values(), "outcome"), right=numbers.values())
    for each in (*records, last):
        if each is last:
            table.add_section()
        counts = (f"{each[key]:.1f}" if key == "elapsed_s" else f"{each[key]:,}" for key in numbers)
        table.add_row(*(each.get(name, "") for name in names), *counts, each["outcome"])
    return table

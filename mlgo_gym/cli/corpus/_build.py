"""``mlgo-gym corpus build``: corpora from recipes."""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.progress import Progress as RichProgress

from corpus_tools.build import build_corpus
from corpus_tools.build_all import build_all
from corpus_tools.clang import OPT_LEVELS, find_clang
from corpus_tools.compilation import Progress
from corpus_tools.recipes import Recipe, available_recipes, load_recipe
from mlgo_gym.cli._options import add_jobs_option, add_opt_level_option, add_output_option
from mlgo_gym.cli.corpus._outcomes import described, outcome_table
from mlgo_gym.cli.show._output import Output
from mlgo_gym.corpus._packages import SPLITS
from mlgo_gym.errors import OptionsError

DESCRIPTION = (
    "Fetch the sources of packages from PyPI, check their hashes, and compile their C and C++ with"
    " clang. One name makes the corpus DIR; several names, or --all, make a corpus DIR/NAME for "
    "each, except where an up-to-date one is there. 'mlgo-gym corpus recipes' lists the recipes."
)
EXAMPLE = "mlgo-gym corpus build lupa --output corpora/lupa"


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    _add_selection(parser)
    add_output_option(parser, "where it goes")
    parser.add_argument("--clang", metavar="PATH", help="clang 19 or newer (default: from PATH)")
    add_opt_level_option(parser, OPT_LEVELS, "Oz")
    add_jobs_option(parser, os.cpu_count() or 1)
    parser.add_argument("--cache", type=Path, metavar="DIR", help="keep fetched sources there")
    parser.add_argument(
        "--keep-going", action="store_true", help="leave out sources that do not compile"
    )


def _add_selection(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "recipes", nargs="*", metavar="NAME", help="a recipe's name, or a recipe file"
    )
    parser.add_argument("--all", action="store_true", help="every recipe of the package")
    parser.add_argument("--split", choices=SPLITS, help="with --all: only recipes of this split")


def run(options: argparse.Namespace, output: Output) -> int:
    recipes = _selected(options)
    build_options = {
        "clang": find_clang(options.clang),
        "opt_level": options.opt_level,
        "jobs": options.jobs,
        "cache_dir": options.cache,
        "keep_going": options.keep_going,
    }
    if len(options.recipes) == 1:
        return _build_one(recipes[0], options.output, build_options, output)
    return _build_many(recipes, options.output, build_options, output)


def _selected(options: argparse.Namespace) -> list[Recipe]:
    if options.all == bool(options.recipes):
        found = "both" if options.all else "neither"
        raise OptionsError(f"recipes to build: expected names or --all, found {found}")
    if options.split and not options.all:
        raise OptionsError("--split: expected --all beside it, found names")
    recipes = [load_recipe(name) for name in options.recipes or available_recipes()]
    return [recipe for recipe in recipes if options.split in {None, recipe.split}]


def _build_one(
    recipe: Recipe, folder: Path, build_options: Mapping[str, Any], output: Output
) -> int:
    with output.progress() as progress:
        start = _BuildProgress(progress)
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


def _build_many(
    recipes: list[Recipe], folder: Path, build_options: Mapping[str, Any], output: Output
) -> int:
    start = time.monotonic()
    with output.progress() as progress:
        outcomes = build_all(recipes, folder, progress=_BuildProgress(progress), **build_options)
    elapsed_s = time.monotonic() - start
    for outcome in outcomes:
        for problem in outcome.problems:
            output.warn(f"{outcome.recipe.name}: {problem}")
    output.print(outcome_table(outcomes, elapsed_s))
    output.json(described(outcomes, elapsed_s))
    return 0 if all(outcome.is_complete for outcome in outcomes) else 1


class _BuildProgress:
    """A progress bar that counts the sources of one recipe after the other."""

    def __init__(self, progress: RichProgress) -> None:
        self._progress = progress
        self._task = progress.add_task("building", total=None)

    def __call__(self, recipe: Recipe) -> Progress:
        self._progress.reset(
            self._task, description=f"building {recipe.name}", total=recipe.modules
        )
        return self._advance

    def _advance(self, done: int, total: int, _source: str) -> None:
        self._progress.update(self._task, completed=done, total=total)

"""``mlgo-gym corpus build``: a corpus from a recipe."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Final

from corpus_tools.build import build_corpus
from corpus_tools.clang import find_clang
from corpus_tools.recipes import available_recipes, load_recipe
from mlgo_gym.cli.options import whole
from mlgo_gym.cli.output import Output, add_json_option

__all__ = ["add_parser"]

_BUILD_LEVELS: Final = ("O1", "O2", "O3", "Os", "Oz")


def add_parser(actions: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add ``corpus build``."""
    parser = actions.add_parser(
        "build",
        help="compile a package from PyPI into a corpus",
        description="Fetch a package's sources from PyPI, check their hash, and compile its C and "
        f"C++ with clang into a corpus. Recipes: {', '.join(available_recipes())}.",
    )
    parser.add_argument("recipe", metavar="NAME", help="a recipe's name, or a recipe file")
    parser.add_argument(
        "--output", type=Path, required=True, metavar="DIR", help="where the corpus goes"
    )
    parser.add_argument("--clang", metavar="PATH", help="clang 19 or newer (default: from PATH)")
    parser.add_argument(
        "--opt-level", choices=_BUILD_LEVELS, default="Oz", help="clang's level (default: Oz)"
    )
    parser.add_argument(
        "--jobs",
        type=whole(1),
        default=os.cpu_count() or 1,
        metavar="N",
        help="run N clangs at once (default: one for each core)",
    )
    parser.add_argument("--cache", type=Path, metavar="DIR", help="keep fetched sources there")
    parser.add_argument(
        "--keep-going", action="store_true", help="leave out sources that do not compile"
    )
    add_json_option(parser)
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace, output: Output) -> int:
    recipe = load_recipe(options.recipe)
    clang = find_clang(options.clang)
    with output.progress() as progress:
        task = progress.add_task(f"building {recipe.name}", total=None)
        report = build_corpus(
            recipe,
            options.output,
            clang=clang,
            opt_level=options.opt_level,
            jobs=options.jobs,
            cache_dir=options.cache,
            keep_going=options.keep_going,
            progress=lambda done, total, _source: progress.update(
                task, completed=done, total=total
            ),
        )
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

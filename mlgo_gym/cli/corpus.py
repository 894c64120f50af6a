"""``mlgo-gym corpus``: build corpora from recipes, and look into corpora."""

from __future__ import annotations

import argparse
import os
from pathlib import Path, PurePosixPath
from typing import Any, Final

from rich.table import Table

from corpus_tools.build import build_corpus
from corpus_tools.clang import find_clang
from corpus_tools.recipes import available_recipes, load_recipe
from mlgo_gym.cli.output import Output, add_json_option
from mlgo_gym.cli.rollout import add_compilation_options, run_policies, warn_of_failures, whole
from mlgo_gym.corpus import Corpus
from mlgo_gym.policies import make_policy
from mlgo_gym.rollout import ModuleReport

__all__ = ["add_parser"]

_LANGUAGES: Final = {".c": "C", ".cc": "C++", ".cpp": "C++", ".cxx": "C++"}
_BUILD_LEVELS: Final = ("O1", "O2", "O3", "Os", "Oz")


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the subcommand and its own subcommands."""
    parser = commands.add_parser(
        "corpus",
        help="build corpora and look into them",
        description="Corpora are folders of bitcode in the layout of LLVM's mlgo-utils.",
    )
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)
    _add_build(actions)
    _add_stats(actions)


def _add_build(actions: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
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
    parser.set_defaults(run=run_build)


def _add_stats(actions: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = actions.add_parser(
        "stats",
        help="languages, sizes and decisions of a corpus",
        description="Compile a corpus with LLVM's default and count what is in it.",
    )
    add_compilation_options(parser)
    add_json_option(parser)
    parser.set_defaults(run=run_stats)


def run_build(options: argparse.Namespace, output: Output) -> int:
    """Run ``corpus build``."""
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


def run_stats(options: argparse.Namespace, output: Output) -> int:
    """Run ``corpus stats``."""
    corpus = Corpus.load(options.corpus)
    reports = list(run_policies(options, output, {"default": make_policy("default")}))
    counts = [_count(corpus, language, reports) for language in (*sorted(_languages(corpus)), None)]
    output.print(_stats_table(counts))
    output.json({"corpus": str(options.corpus), "languages": counts[:-1], "total": counts[-1]})
    return warn_of_failures(reports, output)


def _stats_table(counts: list[dict[str, Any]]) -> Table:
    table = Table()
    table.add_column("language")
    for column in ("modules", "bitcode, bytes", "text, bytes", "decisions", "that ask"):
        table.add_column(column, justify="right")
    for count in counts:
        table.add_row(str(count["language"] or "total"), *(f"{count[key]:,}" for key in _COUNTED))
    return table


_COUNTED: Final = ("modules", "bitcode_bytes", "text_size_bytes", "decisions", "asking_modules")


def _count(corpus: Corpus, language: str | None, reports: list[ModuleReport]) -> dict[str, Any]:
    """Sums over the modules of a language; ``None`` takes all."""
    names = {name for name in corpus if language is None or _language(name) == language}
    complete = [each for each in reports if each.module in names and each.is_complete]
    asked = [each.attempts[0].result for each in complete]
    return {
        "language": language,
        "modules": len(names),
        "bitcode_bytes": sum((corpus.folder / f"{name}.bc").stat().st_size for name in names),
        "text_size_bytes": sum(each.baseline.text_size_bytes for each in complete if each.baseline),
        "decisions": sum(result.decisions for result in asked if result),
        "asking_modules": sum(1 for result in asked if result and result.decisions),
    }


def _languages(corpus: Corpus) -> set[str]:
    return {_language(name) for name in corpus}


def _language(name: str) -> str:
    return _LANGUAGES.get(PurePosixPath(name).suffix, "other")

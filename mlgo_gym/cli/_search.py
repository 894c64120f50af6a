"""``mlgo-gym search``: the smallest code of each module that can be found in a given time."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import asdict

from mlgo_gym.cli._options import (
    add_budget_option,
    add_compilation_options,
    add_corpus_options,
    add_model_options,
    add_output_option,
    add_problem_option,
    add_seed_option,
    models_of,
    packages_of,
    problem_of,
)
from mlgo_gym.cli.show._grid import Grid, Row, amount, ratio
from mlgo_gym.cli.show._output import Output
from mlgo_gym.cli.show._warnings import warn_of
from mlgo_gym.errors import OptionsError
from mlgo_gym.policies._models import model_policies
from mlgo_gym.problems._inlining_for_size import InliningForSize
from mlgo_gym.search._corpus_search import ModuleSearch, search_corpus

DESCRIPTION = (
    "Search the decisions of every module for the smallest text, and save the best "
    "trace of each. Started again, it goes on where it was."
)
EXAMPLE = "mlgo-gym search --corpus corpora/lupa --budget 30s --output traces"


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    add_corpus_options(parser)
    add_budget_option(parser, "for each module, over all runs", "60s")
    add_output_option(parser, "where traces are written; of several packages, a folder for each")
    add_model_options(parser, "a model to start from")
    add_problem_option(parser)
    add_seed_option(parser, "the order of trials")
    add_compilation_options(parser)


def run(options: argparse.Namespace, output: Output) -> int:
    """Run the command."""
    packages = packages_of(options)
    problem = problem_of(options)
    if not isinstance(problem, InliningForSize):
        raise OptionsError(
            f"search: expected InliningForSize or a kind of it, found {problem.name}"
        )
    with model_policies(models_of(options), options.mode, problem) as models:
        searches = search_corpus(
            packages,
            options.output,
            problem,
            budget_s=options.budget,
            policy=next(iter(models.values()), None),
            opt_level=options.opt_level,
            jobs=options.jobs,
            timeout_s=options.timeout,
            seed=options.seed,
        )
        found = list(output.track(searches, "searching", len(packages)))
    order = [packages.label(key) for key in packages]
    found.sort(key=lambda each: order.index(each.module))
    output.print(_grid([each for each in found if not each.error]))
    output.json([asdict(each) for each in found])
    return warn_of((each.error for each in found if each.error), output)


def _grid(found: Sequence[ModuleSearch]) -> Grid:
    total = ModuleSearch(
        "total",
        sum(each.default_size_bytes for each in found),
        sum(each.size_bytes for each in found),
        sum(each.compilations for each in found),
        sum(each.spent_s for each in found),
    )
    headings = ("module", "default", "found", "change", "compilations", "seconds")
    return Grid(headings, [_row(each) for each in found], _row(total))


def _row(search: ModuleSearch) -> Row:
    default, size = search.default_size_bytes, search.size_bytes
    sizes = [amount(default), amount(size), ratio(size, default)]
    return [search.module, *sizes, amount(search.compilations), amount(search.spent_s)]

"""``mlgo-gym search``: the smallest code of each module that can be found in a given time."""

from __future__ import annotations

import argparse
from contextlib import closing
from dataclasses import asdict

from rich.table import Table

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
from mlgo_gym.cli.show._output import Output
from mlgo_gym.cli.show._warnings import warn_of
from mlgo_gym.errors import OptionsError
from mlgo_gym.policies._models import model_policies
from mlgo_gym.problems._inlining_for_size import InliningForSize
from mlgo_gym.scoring._measures import reward_of
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
        with closing(searches):
            found = list(output.track(searches, "searching", len(packages)))
    order = [packages.label(key) for key in packages]
    found.sort(key=lambda each: order.index(each.module))
    output.print(_as_table([each for each in found if not each.error]))
    output.json([asdict(each) for each in found])
    return warn_of((each.error for each in found if each.error), output)


def _as_table(found: list[ModuleSearch]) -> Table:
    table = Table("module", "default", "found", "saved", "compilations", "seconds")
    for column in table.columns[1:]:
        column.justify = "right"
    total = ModuleSearch(
        "total",
        sum(each.default_size_bytes for each in found),
        sum(each.size_bytes for each in found),
        sum(each.compilations for each in found),
        sum(each.spent_s for each in found),
    )
    for each in [*found, total]:
        saved = reward_of(each.size_bytes, each.default_size_bytes)
        table.add_row(
            each.module,
            f"{each.default_size_bytes:,}",
            f"{each.size_bytes:,}",
            f"{saved:.2%}",
            f"{each.compilations:,}",
            f"{each.spent_s:.0f}",
            end_section=each is found[-1] if found else False,
        )
    return table

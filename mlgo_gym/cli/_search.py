"""``mlgo-gym search``: the smallest code of each module that can be found in a given time."""

from __future__ import annotations

import argparse
import contextlib
from dataclasses import asdict
from pathlib import Path

from rich.table import Table

from corpus_tools.command_line import whole
from mlgo_gym.cli._options import above_zero, add_compilation_options, make_problem
from mlgo_gym.cli.show._output import Output
from mlgo_gym.corpus._corpus import Corpus
from mlgo_gym.model._shipped import find_model
from mlgo_gym.problems._inlining_for_size import InliningForSize
from mlgo_gym.runners._load import MODES, runner_factory
from mlgo_gym.runners._policy import RunnerPolicy
from mlgo_gym.scoring._measures import reward_of
from mlgo_gym.search._corpus_search import ModuleSearch, search_corpus

DESCRIPTION = (
    "Search the decisions of every module of a corpus for the smallest text, and save the best "
    "trace of each. Started again, it goes on where it was."
)
EXAMPLE = "mlgo-gym search --corpus corpora/lupa --budget 30 --output traces"


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    add_compilation_options(parser)
    parser.add_argument(
        "--budget",
        type=above_zero,
        metavar="SECONDS",
        default=60.0,
        help="for each module, over all runs (default: 60)",
    )
    parser.add_argument(
        "--output", type=Path, metavar="DIR", required=True, help="where traces are written"
    )
    parser.add_argument(
        "--model", type=find_model, metavar="DIR", help="a model to start from, as in 'rollout'"
    )
    parser.add_argument(
        "--mode", choices=MODES, default="release", help="how the model runs (default: release)"
    )
    parser.add_argument(
        "--seed", type=whole(0), default=0, help="of the order of trials (default: 0)"
    )


def run(options: argparse.Namespace, output: Output) -> int:
    """Run the subcommand."""
    corpus = Corpus.load(options.corpus)
    policy = None
    if options.model is not None:
        policy = RunnerPolicy(runner_factory(options.model, options.mode))
    searches = search_corpus(
        corpus,
        options.output,
        make_problem(InliningForSize, options),
        budget_s=options.budget,
        policy=policy,
        opt_level=options.opt_level,
        jobs=options.jobs,
        timeout_s=options.timeout,
        seed=options.seed,
    )
    with contextlib.closing(searches):
        found = list(output.track(searches, "searching", len(corpus)))
    found.sort(key=lambda each: corpus.names.index(each.module))
    for each in found:
        if each.error:
            output.warn(each.error)
    output.print(_as_table([each for each in found if not each.error]))
    output.json([asdict(each) for each in found])
    return 1 if any(each.error for each in found) else 0


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

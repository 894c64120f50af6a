"""``mlgo-gym search``: the smallest code of each module that can be found in a given time."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from mlgo_gym.cli import _options as shared
from mlgo_gym.cli.show._grid import Grid, Row, amount, ratio
from mlgo_gym.cli.show._output import Output
from mlgo_gym.errors import OptionsError
from mlgo_gym.problems._inlining_for_size import InliningForSize

if TYPE_CHECKING:
    from mlgo_gym.search._corpus_search import ModuleSearch

DESCRIPTION = (
    "Search the decisions of every module for the smallest text, and save the best "
    "trace of each. Started again, it goes on where it was."
)
EXAMPLE = "mlgo-gym search --corpus corpora/lupa --budget 30s --output traces"


def add_options(add: shared.Options) -> None:
    add.corpus()
    add.budget("for each module, over all runs", "60s")
    add.output("where traces are written; of several packages, a folder for each")
    add.model("a model to start from")
    add.problem()
    add.seed("the order of trials")
    add.compilation()


def run(options: argparse.Namespace, output: Output) -> int:
    from mlgo_gym.policies._models import model_policies
    from mlgo_gym.search._corpus_search import search_corpus
    from mlgo_gym.search._oracle import SearchSetting

    packages = shared.packages_of(options)
    problem = shared.problem_of(options)
    if not isinstance(problem, InliningForSize):
        raise OptionsError(
            f"search: expected InliningForSize or a kind of it, found {problem.name}"
        )
    given, access = shared.models_of(options), shared.access_of(options)
    with model_policies(given, options.mode, problem, **access) as models:
        searches = search_corpus(
            packages,
            options.output,
            problem,
            SearchSetting(options.budget, options.seed),
            policy=next(iter(models.values()), None),
            **shared.compilation_of(options),
        )
        found = list(output.track(searches, "searching", len(packages)))
    order = [packages.label(key) for key in packages]
    found.sort(key=lambda each: order.index(each.module))
    output.print(_grid([each for each in found if not each.error]))
    output.json([asdict(each) for each in found])
    return output.warn_of(each.error for each in found if each.error)


def _grid(found: Sequence[ModuleSearch]) -> Grid:
    counts = [
        (each.default_size_bytes, each.size_bytes, each.compilations, each.spent_s)
        for each in found
    ]
    headings = ("module", "default", "found", "change", "compilations", "seconds")
    rows = [_row(each.module, *row) for each, row in zip(found, counts, strict=True)]
    return Grid(headings, rows, _row("total", *map(sum, zip(*counts, strict=True))))


def _row(name: str, default: float, size: float, compilations: float, spent_s: float) -> Row:
    change = ratio(size, default)
    return [name, amount(default), amount(size), change, amount(compilations), amount(spent_s)]

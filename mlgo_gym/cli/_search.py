"""``mlgo-gym search``: the smallest or fastest code of each module, as found in a given time."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Final

from mlgo_gym.base import OptionsError
from mlgo_gym.cli import options as shared
from mlgo_gym.cli.show._grid import Grid, Row, amount, ratio
from mlgo_gym.cli.show._output import Output
from mlgo_gym.corpus import Packages
from mlgo_gym.problems import InliningForSize

if TYPE_CHECKING:
    from mlgo_gym.search import ModuleSearch

DESCRIPTION = (
    "Search answers for every module that give the smallest text, or the least of another reward, "
    "and save the best trace of each. Started again, it continues."
)
_TEXT: Final = 3
_OTHER: Final = 4
_START: Final = {
    "default": "LLVM's default",
    "given": "the model",
    "never": "nothing inlined",
    "small": "calls that cost nothing",
}
EXAMPLE = "mlgo-gym search --corpus corpora/lupa --budget 30s --output traces"


def add_options(add: shared.Options) -> None:
    add.corpus()
    add.budget("time for each module, over all runs", "60s")
    what = "folder for traces; for several packages, one in it for each"
    add.output(what, may_be_remote=True)
    add.reward("text", "keep only results with")
    add.model("a model to start from")
    add.problem()
    add.seed("the order of trials")
    add.compilation(executor=True)


def run(options: argparse.Namespace, output: Output) -> int:
    return searched(options, output, inlining_problem_of(options), shared.packages_of(options))[1]


def inlining_problem_of(options: argparse.Namespace) -> InliningForSize:
    """The problem of the options, which must be the inliner's."""
    problem = shared.problem_of(options)
    if not isinstance(problem, InliningForSize):
        raise OptionsError(
            f"search: expected InliningForSize or a kind of it, found {problem.name}"
        )
    return problem


def searched(
    options: argparse.Namespace, output: Output, problem: InliningForSize, packages: Packages
) -> tuple[list[ModuleSearch], int]:
    """Search packages and print what was found: the good searches, and the exit status."""
    from mlgo_gym.runners import model_policies
    from mlgo_gym.search import SearchSetting, search_corpus

    given, access = shared.models_of(options), shared.access_of(options)
    with model_policies(given, options.mode, problem, **access) as models:
        searches = search_corpus(
            packages,
            options.output,
            problem,
            SearchSetting(options.budget, options.seed, most_text=options.most_text),
            policy=next(iter(models.values()), None),
            reward=options.reward,
            **shared.compilation_of(options),
        )
        found = list(output.track(searches, "searching", len(packages)))
    order = [packages.label(key) for key in packages]
    found.sort(key=lambda each: order.index(each.module))
    good = [each for each in found if not each.error]
    if good:
        output.print(_grid(good))
    if starts := _starts(good):
        output.print(starts)
    if wrong := sum(each.wrong for each in good):
        count = f"{wrong:,} of {sum(each.compilations for each in good):,}"
        output.print(f"Passed over, since a program went wrong: {count} compilations.")
    output.json([asdict(each) for each in found])
    return good, output.warn_of(each.error for each in found if each.error)


def _grid(found: Sequence[ModuleSearch]) -> Grid:
    """Return a table of the findings; a reward's change takes the place of compilations."""
    counts = [
        (each.default_size_bytes, each.size_bytes, each.compilations, each.spent_s)
        for each in found
    ]
    rows = [_row(each.module, *row) for each, row in zip(found, counts, strict=True)]
    footer = _row("total", *map(sum, zip(*counts, strict=True)))
    headings = ["module", "default", "found", "change", "compilations", "seconds"]
    if reward := next((each.reward for each in found), None):
        headings[_TEXT : _OTHER + 1] = ["text", "mix" if "," in reward else reward]
        for row, each in zip(rows, found, strict=True):
            row[_OTHER] = ratio(each.score, each.default_score)
        footer[_OTHER] = ""  # modules may be of the same programs
    return Grid(headings, rows, footer)


def _starts(found: Sequence[ModuleSearch]) -> str:
    """Where the best answers of the modules went out from."""
    counts = Counter(each.start for each in found if each.start)
    names = (f"{_START[start]} {count:,}" for start, count in counts.most_common())
    return f"The best answers went out from: {', '.join(names)}." if counts else ""


def _row(name: str, default: float, size: float, compilations: float, spent_s: float) -> Row:
    change = ratio(size, default)
    return [name, amount(default), amount(size), change, amount(compilations), amount(spent_s)]

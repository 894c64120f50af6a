"""``mlgo-gym profile check``: whether the counts in a corpus add up."""

from __future__ import annotations

import argparse

from mlgo_gym.cli import Output
from mlgo_gym.cli import options as shared

DESCRIPTION = (
    "Check that the counts in a corpus's bitcode add up: each block is left as often as it is "
    "entered, and each function is entered at least as often as it is called. They do not add up "
    "if threads shared counters, which loses counts. Then the exit status is 1."
)
EXAMPLE = "mlgo-gym profile check --corpus counted"


def add_options(add: shared.Options) -> None:
    add.corpus()
    what = "the share of a count that may be missing, as where a program ends inside of functions"
    add("--tolerance", "NUMBER", what, 0.001)
    add.workers()


def run(options: argparse.Namespace, output: Output) -> int:
    from mlgo_gym.lab.programs import counts_of_corpus

    corpus = shared.one_corpus_of(options)
    with output.progress() as progress:
        task = progress.add_task("checking", total=len(corpus))
        counts = counts_of_corpus(
            corpus, **shared.workers_of(options), progress=lambda: progress.advance(task)
        )
    found = counts.inconsistencies(options.tolerance)
    functions = sum(len(each.functions) for each in counts.modules.values())
    output.print(f"{functions:,} functions with counts, {len(found):,} that do not add up")
    output.json({"functions": functions, "inconsistencies": [each.record() for each in found]})
    return output.warn_of(map(str, found))

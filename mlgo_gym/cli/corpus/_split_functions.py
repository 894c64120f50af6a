"""``mlgo-gym corpus split-functions``: one module a function, for register allocation."""

from __future__ import annotations

import argparse
from pathlib import Path

from corpus_tools.command_line import whole
from mlgo_gym.cli._options import add_opt_level_option, add_worker_options
from mlgo_gym.cli.show._output import Output
from mlgo_gym.corpus._corpus import Corpus
from mlgo_gym.curation._functions import split_functions

DESCRIPTION = (
    "Optimise every module of a corpus and make a module of each of its functions, whose code is "
    "that of the whole module."
)
EXAMPLE = "mlgo-gym corpus split-functions corpora/lupa --output functions"


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("corpus", type=Path, metavar="DIR", help="a corpus")
    parser.add_argument(
        "--output", type=Path, required=True, metavar="OUT", help="where the new corpus goes"
    )
    add_opt_level_option(parser)
    parser.add_argument(
        "--minimum-instructions",
        type=whole(0),
        default=0,
        metavar="N",
        help="leave out functions with fewer instructions (default: 0)",
    )
    add_worker_options(parser)


def run(options: argparse.Namespace, output: Output) -> int:
    corpus = Corpus.load(options.corpus)
    with output.progress() as progress:
        task = progress.add_task("optimising", total=len(corpus))
        result = split_functions(
            corpus,
            options.output,
            opt_level=options.opt_level,
            minimum_instructions=options.minimum_instructions,
            jobs=options.jobs,
            timeout_s=options.timeout,
            progress=lambda: progress.advance(task),
        )
    for failure in result.failures.values():
        output.warn(failure)
    output.print(
        f"{len(result.modules):,} functions with {result.instructions:,} instructions, out of "
        f"{len(corpus) - len(result.failures):,} modules, in {options.output}"
    )
    output.json(
        {
            "output": str(options.output),
            "modules": list(result.modules),
            "instructions": result.instructions,
            "failures": result.failures,
        }
    )
    return 1 if result.failures else 0

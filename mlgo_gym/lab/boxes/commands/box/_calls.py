"""``mlgo-gym box calls``: the functions of a program that can be boxed."""

from __future__ import annotations

import argparse
from typing import Final

from mlgo_gym.cli import Output
from mlgo_gym.cli import options as shared

DESCRIPTION = (
    "Run a program once, and print how often it calls each of its functions. Functions that were "
    "local to a module have its number behind their names."
)
EXAMPLE = "mlgo-gym box calls --workload json"
_SHOWN: Final = 40


def add_options(add: shared.Options) -> None:
    add.corpus()
    add("--workload", "NAME", "the workload's name; give one corpus", required=True)
    add.opt_level()


def run(options: argparse.Namespace, output: Output) -> int:
    from mlgo_gym.cli import narrow_table
    from mlgo_gym.lab.boxes import BoxedProgram

    corpus = shared.one_corpus_of(options)
    with BoxedProgram.of(corpus, options.workload, opt_level=options.opt_level) as program:
        calls = program.calls()
        total = len(program.functions)
    ordered = sorted(calls.items(), key=lambda each: (-each[1], each[0]))
    table = narrow_table(("function", "calls"), right=("calls",))
    for name, count in ordered[:_SHOWN]:
        table.add_row(name, f"{count:,}")
    output.print(table)
    rest = f"; {len(ordered) - _SHOWN:,} more are not shown" if len(ordered) > _SHOWN else ""
    output.print(f"{len(calls):,} of {total:,} functions are called{rest}")
    output.json(dict(ordered))
    return 0

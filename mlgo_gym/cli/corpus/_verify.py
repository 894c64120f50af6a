"""``mlgo-gym corpus verify``: whether the modules of a corpus compile back."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from corpus_tools.clang import find_clang
from mlgo_gym.base import OptionsError
from mlgo_gym.cli import options as shared
from mlgo_gym.cli.show._grid import Grid, Row, amount
from mlgo_gym.cli.show._output import Output

if TYPE_CHECKING:
    from rich.table import Table

    from mlgo_gym.curation import Verdict

DESCRIPTION = (
    "Compile every module with the embedded LLVM and, with --clang, with clang by the module's own "
    "command. Clang is given only options that run no program and write no file; options that are "
    "left out are named. Clang's code is compared with the original object's, the embedded LLVM's "
    "with clang's. Exit status 1: something failed, or differs from the original."
)
EXAMPLE = "mlgo-gym corpus verify --corpus corpora/lupa --clang"


def add_options(add: shared.Options) -> None:
    add.corpus()
    add("--clang", "PATH", "run clang too: that one, or the first on PATH", nargs="?", const=True)
    what = "the original objects: that of module NAME is DIR/NAME, or, of several packages, "
    add("--objects", "DIR", what + "DIR/PACKAGE/NAME")
    add.workers()


def run(options: argparse.Namespace, output: Output) -> int:
    from mlgo_gym.curation import CheckOutcome

    verdicts = _verdicts(options, output)
    bad = [each for each in verdicts if not each.is_good]
    totals = {
        name: Counter(str(each.checks[name].outcome) for each in verdicts) for name in _CHECKS
    }
    rows: list[Row] = [
        [title, *(amount(totals[name][outcome]) for outcome in CheckOutcome)]
        for name, title in _CHECKS.items()
    ]
    output.print(Grid(("check", *map(str, CheckOutcome)), rows, folds=True))
    if bad:
        output.print(_failures(bad))
    output.json(
        {
            "modules": [_record(each) for each in verdicts],
            "total": totals,
            "not_honoured": output.warn_of_not_honoured(each.not_honoured for each in verdicts),
        }
    )
    if options.objects and all(
        each.original.outcome is CheckOutcome.NO_OBJECT for each in verdicts
    ):
        output.error(f"--objects: expected objects of the modules in {options.objects}, found none")
        return 1
    return 1 if bad else 0


def _verdicts(options: argparse.Namespace, output: Output) -> list[Verdict]:
    from mlgo_gym.curation import verify_corpus

    if options.clang is None and options.objects is not None:
        raise OptionsError("--objects: expected --clang with it, whose code is compared with them")
    if options.objects is not None and not options.objects.is_dir():
        raise OptionsError(f"--objects: expected a folder, found {str(options.objects)!r}")
    named = None if options.clang is True else options.clang
    clang = None if options.clang is None else find_clang(named)
    packages = shared.packages_of(options, allow_thinlto=clang is not None)
    workers = shared.workers_of(options)
    verdicts = verify_corpus(packages, clang=clang, objects=options.objects, **workers)
    return list(output.track(verdicts, "verifying", len(packages)))


_CHECKS = {
    "embedded": "embedded LLVM",
    "original": "clang against the original",
    "clang": "embedded LLVM against clang",
}


def _failures(bad: Sequence[Verdict]) -> Table:
    from rich.table import Table

    from mlgo_gym.curation import CheckOutcome

    table = Table("module", "check", "outcome")
    for verdict in bad:
        for name, title in _CHECKS.items():
            check = verdict.checks[name]
            if check.outcome in {CheckOutcome.FAILED, CheckOutcome.DIFFERS}:
                table.add_row(verdict.module, title, str(check).partition("\n")[0])
    return table


def _record(verdict: Verdict) -> dict[str, Any]:
    checks = {
        name: {"outcome": str(check.outcome), "detail": check.detail or None}
        for name, check in verdict.checks.items()
    }
    return {"module": verdict.module, **checks, "not_honoured": list(verdict.not_honoured)}

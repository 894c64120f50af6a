"""``mlgo-gym corpus verify``: whether the modules of a corpus compile back."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.table import Table

from corpus_tools.clang import find_clang
from mlgo_gym.cli._options import add_corpus_options, add_worker_options, packages_of
from mlgo_gym.cli.show._grid import Grid, Row, amount
from mlgo_gym.cli.show._output import Output
from mlgo_gym.cli.show._warnings import count_not_honoured, warn_of_not_honoured
from mlgo_gym.curation._verification import Outcome, Verdict, verify_corpus
from mlgo_gym.errors import OptionsError

DESCRIPTION = (
    "Compile every module with the embedded LLVM and, with --clang, with clang and the module's "
    "own command, which runs as yours: do that with corpora you trust. Clang's code is compared "
    "with the original object's, the embedded LLVM's with clang's. Exit status 1: something "
    "failed, or differs from the original."
)
EXAMPLE = "mlgo-gym corpus verify --corpus corpora/lupa --clang"


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    add_corpus_options(parser)
    parser.add_argument(
        "--clang",
        nargs="?",
        const="",
        metavar="PATH",
        help="run clang too: that one, or the first on PATH",
    )
    parser.add_argument(
        "--objects",
        type=Path,
        metavar="DIR",
        help="the original objects: that of module NAME is DIR/NAME, or, of several packages, "
        "DIR/PACKAGE/NAME",
    )
    add_worker_options(parser)


def run(options: argparse.Namespace, output: Output) -> int:
    """Run the command."""
    verdicts = _verdicts(options, output)
    counts = count_not_honoured(each.not_honoured for each in verdicts)
    bad = [each for each in verdicts if not each.is_good]
    output.print(_totals(verdicts))
    if bad:
        output.print(_failures(bad))
    warn_of_not_honoured(counts, output)
    output.json(
        {
            "modules": [_record(each) for each in verdicts],
            "total": {name: dict(_count(verdicts, name)) for name in _CHECKS},
            "not_honoured": counts,
        }
    )
    if options.objects and all(each.original.outcome is Outcome.NO_OBJECT for each in verdicts):
        output.error(f"--objects: expected objects of the modules in {options.objects}, found none")
        return 1
    return 1 if bad else 0


def _verdicts(options: argparse.Namespace, output: Output) -> list[Verdict]:
    if options.clang is None and options.objects is not None:
        raise OptionsError("--objects: expected --clang with it, whose code is compared with them")
    if options.objects is not None and not options.objects.is_dir():
        raise OptionsError(f"--objects: expected a folder, found {str(options.objects)!r}")
    clang = None if options.clang is None else find_clang(options.clang or None)
    packages = packages_of(options, allow_thinlto=clang is not None)
    verdicts = verify_corpus(
        packages,
        clang=clang,
        objects=options.objects,
        jobs=options.jobs,
        timeout_s=options.timeout,
    )
    return list(output.track(verdicts, "verifying", len(packages)))


_CHECKS = {
    "embedded": "embedded LLVM",
    "original": "clang against the original",
    "clang": "embedded LLVM against clang",
}


def _totals(verdicts: Sequence[Verdict]) -> Grid:
    rows: list[Row] = []
    for name, title in _CHECKS.items():
        count = _count(verdicts, name)
        rows.append([title, *(amount(count[str(outcome)]) for outcome in Outcome)])
    return Grid(("check", *map(str, Outcome)), rows, folds=True)


def _failures(bad: Sequence[Verdict]) -> Table:
    table = Table("module", "check", "outcome")
    for verdict in bad:
        for name, title in _CHECKS.items():
            check = verdict.checks[name]
            if check.outcome in {Outcome.FAILED, Outcome.DIFFERS}:
                table.add_row(verdict.module, title, str(check).partition("\n")[0])
    return table


def _record(verdict: Verdict) -> dict[str, Any]:
    checks = {
        name: {"outcome": str(check.outcome), "detail": check.detail or None}
        for name, check in verdict.checks.items()
    }
    return {"module": verdict.module, **checks, "not_honoured": list(verdict.not_honoured)}


def _count(verdicts: Sequence[Verdict], name: str) -> Counter[str]:
    return Counter(str(each.checks[name].outcome) for each in verdicts)

"""``mlgo-gym workload check``: that a workload is fit to measure by."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from mlgo_gym.cli import Output
from mlgo_gym.cli import options as shared
from mlgo_gym.lab.programs.commands._programs import count_workloads

if TYPE_CHECKING:
    from mlgo_gym.lab.programs import Checked

DESCRIPTION = (
    "Build each workload's program twice, by LLVM's default and with nothing inlined. Run both, "
    "and one of them twice under valgrind. Check that the output is the expected one and that "
    "counts are equal. Print how many of the linked modules are executed."
)
EXAMPLE = "mlgo-gym workload check --corpus corpora/lupa"


def add_options(add: shared.Options) -> None:
    add.corpus()
    add("--workload", "NAME", "only this workload; repeat for more (default: all)", many=True)
    add.workers()


def run(options: argparse.Namespace, output: Output) -> int:
    from mlgo_gym.cli import Grid
    from mlgo_gym.lab.programs import check_tools, check_workloads, corpora_with_workloads

    corpora = corpora_with_workloads(shared.packages_of(options).named)
    check_tools(["instructions"])
    rows: list[list[Any]] = []
    records, errors = [], []
    total = count_workloads(corpora, options.workload)
    checks = (
        (package, found)
        for package, corpus in corpora.items()
        for found in check_workloads(corpus, options.workload, **shared.workers_of(options))
    )
    for package, found in output.track(checks, "checking", total):
        records.append({"package": package, **found.record()})
        if found.error:
            errors.append(f"{package}: {found.error}")
        else:
            rows.append(_row(package, found))
    heads = ("workload", "seconds", "instructions", "again", "modules", "executed")
    output.print(Grid(heads, rows, folds=True))
    output.json(records)
    return output.warn_of(errors)


def _row(package: str, found: Checked) -> list[str]:
    first, second = found.instructions
    again = "equal" if first == second else f"{second - first:+,}"
    return [
        f"{package}/{found.workload}",
        f"{found.cpu_s:.3f}",
        f"{first:,}",
        again,
        str(found.linked_modules),
        str(len(found.reached)),
    ]

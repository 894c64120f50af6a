"""``mlgo-gym workload list``: what there is to run."""

from __future__ import annotations

import argparse

from mlgo_gym.cli import Output
from mlgo_gym.cli import options as shared

DESCRIPTION = "List the workloads of corpora: the program's modules, and what it does."
EXAMPLE = "mlgo-gym workload list --corpus corpora"


def add_options(add: shared.Options) -> None:
    add.corpus()


def run(options: argparse.Namespace, output: Output) -> int:
    from mlgo_gym.cli import narrow_table
    from mlgo_gym.lab.programs import corpora_with_workloads, find_workloads
    from mlgo_gym.lab.programs._program import linked_modules

    corpora = corpora_with_workloads(shared.packages_of(options, allow_thinlto=True).named)
    table = narrow_table(("workload", "modules", "what it does"), right=("modules",))
    rows = []
    for package, corpus in corpora.items():
        for workload in find_workloads(corpus).values():
            names = linked_modules(workload, corpus)
            table.add_row(f"{package}/{workload.name}", str(len(names)), workload.about)
            about = {"package": package, "workload": workload.name, "about": workload.about}
            rows.append(about | {"modules": list(names)})
    output.print(table)
    output.json(rows)
    return 0

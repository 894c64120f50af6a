"""``mlgo-gym bench suites``: what ships."""

from __future__ import annotations

import argparse

from mlgo_gym.cli import Output
from mlgo_gym.cli import options as shared

DESCRIPTION = "List the suites that ship: what is compiled, and what is measured of it."
EXAMPLE = "mlgo-gym bench suites"


def add_options(add: shared.Options) -> None:
    del add


def run(options: argparse.Namespace, output: Output) -> int:
    from mlgo_gym.cli import narrow_table
    from mlgo_gym.lab.bench import Suite, shipped_suites

    del options
    table = narrow_table(("suite", "packages", "modules", "level", "measures"), right=("packages",))
    records = []
    for name in shipped_suites():
        suite = Suite.shipped(name)
        modules = sum(path.endswith(".bc") for path in suite.sums) // len(suite.scored_tracks)
        level, measures = suite.opt_level or "-", ", ".join(suite.measures)
        table.add_row(name, str(len(suite.packages)), str(modules or "-"), level, measures)
        records.append({**suite.description, "modules": modules, "sha256": suite.sha256})
    output.print(table)
    output.json(records)
    return 0

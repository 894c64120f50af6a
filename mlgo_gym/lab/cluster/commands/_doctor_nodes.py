"""``mlgo-gym doctor --ray``: what the nodes of a cluster run and have."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import TYPE_CHECKING

from mlgo_gym.cli import Output

if TYPE_CHECKING:
    from mlgo_gym.corpus import ModuleFile
    from mlgo_gym.lab.cluster._nodes import NodeReport

_COLOURS = {"ok": "green"}


def look(options: argparse.Namespace, output: Output) -> int:
    """Show the nodes of the cluster that ``--ray`` named and `on_cluster` connected to."""
    from rich.table import Column, Table
    from rich.text import Text

    files = _first_modules(options)
    nodes: list[NodeReport] = options.jobs.nodes(files)
    headings = ["node", "state", "CPUs", "memory", "free", *["corpora"] * bool(files), "found"]
    table = Table(*(Column(each, overflow="fold") for each in headings))
    for node in nodes:
        sizes = [_gib(node.memory_bytes), _gib(node.free_bytes)]
        seen = [f"{node.seen} of {len(files)}"] if files else []
        state = Text(node.state, _COLOURS.get(node.state, "red"))
        runs = ", ".join(f"{name} {value}" for name, value in node.runs.items())
        table.add_row(node.node, state, str(node.cpus), *sizes, *seen, node.found or runs)
    output.print(table)
    if any(node.seen < len(files) for node in nodes):
        output.print("What a node does not read itself is sent to it from here.")
    output.json([asdict(each) | {"asked": len(files)} for each in nodes])
    return 0 if all(each.state == "ok" for each in nodes) else 1


def _first_modules(options: argparse.Namespace) -> list[ModuleFile]:
    """The first module of each corpus that is given."""
    if not options.corpus:
        return []
    from mlgo_gym.corpus import Packages

    packages = Packages.load(options.corpus, allow_thinlto=True)
    return [packages.file(keys[0]) for keys in packages.by_package.values()]


def _gib(size_bytes: int) -> str:
    return f"{size_bytes / (1 << 30):.1f} GiB" if size_bytes else ""

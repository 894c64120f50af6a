"""``--ray``: the workers of a command on a Ray cluster instead of here."""

from __future__ import annotations

import argparse
import sys
import threading
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, ClassVar, TextIO, cast

from mlgo_gym.base import OptionsError
from mlgo_gym.cli import Extension, Output, place

if TYPE_CHECKING:
    from mlgo_gym.cli.options import Options
    from mlgo_gym.corpus import ModuleFile
    from mlgo_gym.lab.cluster._cluster import NodeReport
    from mlgo_gym.lab.cluster._ray_executor import NodeWork


class RayExtension(Extension):
    """``--ray``: a command's jobs on the nodes of a Ray cluster."""

    commands: ClassVar[Collection[str]] = ("doctor",)
    traits: ClassVar[Collection[str]] = ("executor",)

    def add_options(self, add: Options, command: str) -> None:
        """Add ``--ray`` and ``--ray-workers``; ``doctor`` looks at nodes instead."""
        if command == "doctor":
            what = "look at the nodes of a Ray cluster: local starts one, auto is this machine's, "
            add("--ray", "ADDRESS", what + "or HOST:PORT")
            what = "with --ray: check whether nodes can read this corpus, or folder of them; "
            add("--corpus", "DIR", what + "repeat for more", many=True, type=place)
            return
        what = "work on a Ray cluster, not here: local starts one, auto is this machine's, or "
        add("--ray", "ADDRESS", what + "HOST:PORT")
        what = "with --ray: work on N modules at once, whatever --jobs is (default: one for each "
        add("--ray-workers", "N", what + "CPU)")

    @contextmanager
    def running(self, options: argparse.Namespace, output: Output) -> Iterator[None]:
        """Connect to the cluster, and print what its nodes have done in the end."""
        if getattr(options, "ray", None) is None:
            if options.command == "doctor" and getattr(options, "corpus", None):
                raise OptionsError("--corpus: expected --ray with it, found none")
            yield
            return
        with _cluster(options, output):
            yield


class _StdoutWithoutRay:
    """Standard output, but Ray's messages about its nodes go to standard error.

    Ray prints them to standard output whatever it is told (``listen_error_messages`` in
    ``ray/_private/worker.py``), also in the middle of a command's JSON.
    """

    def __init__(self, stdout: TextIO) -> None:
        self._stdout = stdout

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stdout, name)

    def write(self, text: str) -> int:
        is_ray = threading.current_thread().name == "ray_listen_error_messages"
        return (sys.stderr if is_ray else self._stdout).write(text)


@contextmanager
def _cluster(options: argparse.Namespace, output: Output) -> Iterator[None]:
    from mlgo_gym.lab.cluster._cluster import RayCluster

    stdout = cast("TextIO", _StdoutWithoutRay(sys.stdout))
    workers = getattr(options, "ray_workers", None)
    with redirect_stdout(stdout), RayCluster(options.ray, workers=workers) as cluster:
        options.jobs = cluster
        if options.command == "doctor":
            options.run = _look
        output.besides = lambda: _all(cluster.work)
        yield
        for work in cluster.work:
            if work.lost_workers:
                output.warn(f"node {work.node}: {_count(work.lost_workers, 'worker')} died")
            output.remark(f"node {work.node}: {_described(work)}")


def _all(found: Sequence[NodeWork]) -> str:
    """Describe the work of all nodes in one line.

    >>> from mlgo_gym.lab.cluster._ray_executor import NodeWork
    >>> _all([NodeWork("a", decisions=999), NodeWork("b", decisions=1)])
    '2 nodes, 1,000 decisions'
    """
    decisions = sum(each.decisions for each in found)
    return f"{_count(len(found), 'node')}, {_count(decisions, 'decision')}"


def _described(work: NodeWork) -> str:
    """Describe the work of one node.

    >>> from mlgo_gym.lab.cluster._ray_executor import NodeWork
    >>> _described(NodeWork("a", workers=1, items=9, failures=1, compilations=18, decisions=1200))
    '9 items (1 failed) by 1 worker in 0.0 s, 18 compilations, 1,200 decisions'
    """
    return (
        f"{_count(work.items, 'item')} ({work.failures:,} failed) by "
        f"{_count(work.workers, 'worker')} in {work.busy_s:.1f} s, "
        f"{_count(work.compilations, 'compilation')}, {_count(work.decisions, 'decision')}"
    )


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'s' * (number != 1)}"


def _look(options: argparse.Namespace, output: Output) -> int:
    """Show the nodes of the cluster that ``--ray`` named and `_cluster` connected to."""
    from rich.table import Column, Table
    from rich.text import Text

    files = _first_modules(options)
    nodes: list[NodeReport] = options.jobs.nodes(files)
    headings = ["node", "state", "CPUs", "memory", "free", *["corpora"] * bool(files), "found"]
    table = Table(*(Column(each, overflow="fold") for each in headings))
    for node in nodes:
        sizes = [_gib(node.memory_bytes), _gib(node.free_bytes)]
        seen = [f"{node.seen} of {len(files)}"] if files else []
        state = Text(node.state, "green" if node.state == "ok" else "red")
        runs = ", ".join(f"{name} {value}" for name, value in node.runs.items())
        table.add_row(node.node, state, str(node.cpus), *sizes, *seen, node.found or runs)
    output.print(table)
    if any(node.seen < len(files) for node in nodes):
        output.print("What a node does not read itself is sent to it from here.")
    output.json([asdict(each) | {"asked": len(files)} for each in nodes])
    return 0 if all(each.state == "ok" for each in nodes) else 1


def _first_modules(options: argparse.Namespace) -> list[ModuleFile]:
    if not options.corpus:
        return []
    from mlgo_gym.corpus import Packages

    packages = Packages.load(options.corpus, allow_thinlto=True)
    return [packages.file(keys[0]) for keys in packages.by_package.values()]


def _gib(size_bytes: int) -> str:
    return f"{size_bytes / (1 << 30):.1f} GiB" if size_bytes else ""

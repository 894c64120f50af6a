"""``--ray``: the workers of a command on a Ray cluster instead of here."""

from __future__ import annotations

import argparse
import sys
import threading
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from typing import TYPE_CHECKING, Any, ClassVar, TextIO, cast

from mlgo_gym.base import OptionsError
from mlgo_gym.cli import Extension, place

if TYPE_CHECKING:
    from mlgo_gym.cli import Output
    from mlgo_gym.cli.options import Options
    from mlgo_gym.lab.cluster._tally import NodeWork


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
            from mlgo_gym.lab.cluster.commands._doctor_nodes import look

            options.run = look
        output.besides = lambda: _all(cluster.work)
        yield
        for work in cluster.work:
            if work.lost_workers:
                output.warn(f"node {work.node}: {_count(work.lost_workers, 'worker')} died")
            output.remark(f"node {work.node}: {_described(work)}")


def _all(found: Sequence[NodeWork]) -> str:
    """Describe the work of all nodes in one line.

    >>> from mlgo_gym.lab.cluster._tally import NodeWork
    >>> _all([NodeWork("a", decisions=999), NodeWork("b", decisions=1)])
    '2 nodes, 1,000 decisions'
    """
    decisions = sum(each.decisions for each in found)
    return f"{_count(len(found), 'node')}, {_count(decisions, 'decision')}"


def _described(work: NodeWork) -> str:
    """Describe the work of one node.

    >>> from mlgo_gym.lab.cluster._tally import NodeWork
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

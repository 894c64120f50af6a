"""``--ray``: the workers of a command on a Ray cluster instead of here."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mlgo_gym.cli._options import Options
    from mlgo_gym.cli.show._output import Output
    from mlgo_gym.scale._tally import NodeWork


def add_ray(add: Options) -> None:
    """``--ray``, and how many workers there are then."""
    what = "work on a Ray cluster, not here: local starts one, auto is this machine's, or HOST:PORT"
    add("--ray", "ADDRESS", what)
    what = "with --ray: work on N modules at once, whatever --jobs is (default: one for each CPU)"
    add("--ray-workers", "N", what)


@contextmanager
def on_cluster(options: argparse.Namespace, output: Output) -> Iterator[None]:
    """Where a command's jobs are to be on a cluster, they are, as long as this lasts.

    What nodes have done stands behind lines of progress, and below them in the end; that workers
    have died is said in any case.
    """
    if getattr(options, "ray", None) is None:
        yield
        return
    from mlgo_gym.scale._cluster import RayCluster

    with RayCluster(options.ray, workers=getattr(options, "ray_workers", None)) as cluster:
        options.jobs = cluster
        output.besides = lambda: _all(cluster.work)
        yield
        for work in cluster.work:
            if work.lost_workers:
                output.warn(f"node {work.node}: {_count(work.lost_workers, 'worker')} died")
            output.remark(f"node {work.node}: {_described(work)}")


def _all(found: Sequence[NodeWork]) -> str:
    """What all nodes have done, as far as it fits a line.

    >>> from mlgo_gym.scale._tally import NodeWork
    >>> _all([NodeWork("a", decisions=999), NodeWork("b", decisions=1)])
    '2 nodes, 1,000 decisions'
    """
    decisions = sum(each.decisions for each in found)
    return f"{_count(len(found), 'node')}, {_count(decisions, 'decision')}"


def _described(work: NodeWork) -> str:
    """What one node has done.

    >>> from mlgo_gym.scale._tally import NodeWork
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

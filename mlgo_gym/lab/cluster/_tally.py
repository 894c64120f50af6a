"""The work of each node, for callers, timelines and the cluster's own metrics."""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from time import monotonic_ns
from typing import Any, Final

from mlgo_gym.llvm import Counts, Ended, Made, tell


@dataclass(frozen=True, slots=True)
class Place:
    """The place of a worker: its node's name and id, and the difference of its clock."""

    node: str
    node_id: str
    shift_ns: int


@dataclass(frozen=True, slots=True)
class BatchReport:
    """The report of a batch: its seconds, and the compilations meanwhile.

    Compilations are described where somebody watches.
    """

    seconds: float
    counts: Counts
    ended: tuple[Ended, ...] = ()


@dataclass(frozen=True, slots=True)
class NodeWork:
    """The work of a node so far.

    Attributes:
        node: its host's name.
        workers: how many there were, one after the other or beside each other.
        items: what was done: modules of a rollout, for example.
        failures: those of them that came to nothing.
        compilations: what LLVM has compiled for them.
        decisions: how many LLVM asked for.
        busy_s: the time that its workers had something to do, added up, in seconds.
        lost_workers: those that died; what they had was done again elsewhere.
    """

    node: str
    workers: int = 0
    items: int = 0
    failures: int = 0
    compilations: int = 0
    decisions: int = 0
    busy_s: float = 0.0
    lost_workers: int = 0


_COUNTS: Final = tuple(each.name for each in fields(NodeWork) if each.name != "node")


class Tally:
    """Counts by nodes, as long as a connection to a cluster is open."""

    def __init__(self) -> None:
        self._nodes: dict[str, NodeWork] = {}
        self._exported: dict[str, NodeWork] = {}
        self._counters: dict[str, Any] = {}

    @property
    def nodes(self) -> list[NodeWork]:
        """The work of each node, by name; a node that has gone is among them."""
        found = sorted(self._nodes.items(), key=lambda each: (each[1].node, each[0]))
        return [each for _, each in found]

    def joined(self, place: Place) -> None:
        """A worker is there."""
        self._add(place, workers=1)

    def lost(self, place: Place) -> None:
        """A worker has died."""
        self._add(place, lost_workers=1)

    def done(self, place: Place, outcomes: Iterable[Made[Any]], report: BatchReport) -> None:
        """A worker has done a batch; timelines are told of it by this machine's clock."""
        failed = [each.error is not None for each in outcomes]
        self._add(
            place,
            items=len(failed),
            failures=sum(failed),
            compilations=report.counts.compilations,
            decisions=report.counts.decisions,
            busy_s=report.seconds,
        )
        for ended in report.ended:
            tell(_here(ended, place))

    def export(self) -> None:
        """Tell the cluster's metrics what is new: a call to them costs more than a result does."""
        for node_id, work in self._nodes.items():
            before = self._exported.get(node_id, NodeWork(work.node))
            if work == before:
                continue
            self._exported[node_id] = work
            for name in _COUNTS:
                if more := getattr(work, name) - getattr(before, name):
                    self._counter(name).inc(more, {"node": work.node})

    def _add(self, place: Place, **values: float) -> None:
        before = self._nodes.get(place.node_id) or NodeWork(place.node)
        sums: dict[str, Any] = {name: getattr(before, name) + more for name, more in values.items()}
        self._nodes[place.node_id] = replace(before, **sums)

    def _counter(self, name: str) -> Any:
        if name not in self._counters:
            metrics = importlib.import_module("ray.util.metrics")
            about = f"mlgo-gym: {name.replace('_', ' ')}"
            self._counters[name] = metrics.Counter(
                f"mlgo_gym_{name}", description=about, tag_keys=("node",)
            )
        return self._counters[name]


def shift_ns(there_ns: int) -> int:
    """Return the nanoseconds to add to another machine's moments.

    The way here counts as well: compilations are drawn so much later than they were.
    """
    return monotonic_ns() - there_ns


def _here(ended: Ended, place: Place) -> Ended:
    by_ns = place.shift_ns
    answers = tuple(
        replace(each, asked_ns=each.asked_ns + by_ns, answered_ns=each.answered_ns + by_ns)
        for each in ended.answers
    )
    start_ns, end_ns = ended.start_ns + by_ns, ended.end_ns + by_ns
    return replace(ended, start_ns=start_ns, end_ns=end_ns, answers=answers, node=place.node)

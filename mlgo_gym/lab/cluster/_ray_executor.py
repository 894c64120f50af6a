"""The caller's side of workers on a cluster: who is there, what they are sent, what comes back."""

from __future__ import annotations

import importlib
import itertools
import time
from collections import OrderedDict
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future
from dataclasses import dataclass, fields, replace
from functools import partial
from queue import Empty, SimpleQueue
from time import monotonic_ns
from typing import Any, Final, TypeVar

from mlgo_gym.base import EnvironmentSetupError, InputError, UsageError
from mlgo_gym.corpus import Module, read_files
from mlgo_gym.lab.cluster._dispatch import Dispatch, ItemBatch
from mlgo_gym.lab.cluster._ray_worker import (
    BatchReport,
    RemoteWorker,
    SentBatch,
    column,
    facts,
    files_in,
    lack_of_space,
    packed,
    values_of,
)
from mlgo_gym.llvm import Ended, Executor, ItemWork, Made, State, is_watched, tell

SMALL_BYTES: Final = 1 << 16
"""Modules up to this size come with each batch, where nodes cannot read them themselves; larger
ones are stored, once for each node."""

STORED_BYTES: Final = 1 << 28
"""How much of what was stored is kept for another time."""

_LOOK_S: Final = 1.0
_MEETING_S: Final = 10.0
_CLOSING_S: Final = 5.0
_MOST_FAILURES: Final = 3


@dataclass(frozen=True, slots=True)
class Place:
    """The place of a worker: its node's name and id, and the difference of its clock."""

    node: str
    node_id: str
    shift_ns: int


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


_State = TypeVar("_State", bound=State)
_Item = TypeVar("_Item")
_Value = TypeVar("_Value")


class Room:
    """The cluster's CPUs, which one of several executors has at a time.

    Attributes:
        tally: what they all had done there.
    """

    def __init__(self) -> None:
        self.tally: Final = Tally()
        self._holder: RayExecutor[Any] | None = None

    def take(self, holder: RayExecutor[Any]) -> None:
        """Have the room; whoever had it between two runs starts workers anew for its next."""
        if self._holder is not None and self._holder is not holder:
            self._holder.leave()
        self._holder = holder


class RayExecutor(Executor[_State]):
    """Workers that are Ray's actors; whoever is lost is replaced where there is room.

    Args:
        state: makes what each worker keeps; it is sent.
        ray: the module, connected.
        room: what it shares with the cluster's other executors.
        count: how many workers there are; ``None`` is one for each CPU of the cluster.
        wait_s: how long nobody may be there, in seconds.
    """

    def __init__(
        self,
        state: Callable[[], _State],
        ray: Any,
        room: Room,
        *,
        count: int | None,
        wait_s: float,
    ) -> None:
        self._ray = ray
        self._room = room
        self._is_running = False
        self._make = state
        self._count = count
        self._wait_s = wait_s
        self._kind = ray.remote(num_cpus=1, max_restarts=0)(RemoteWorker)
        self._facts = facts()
        self._numbers = itertools.count()
        self._actors: dict[int, Any] = {}
        self._here: dict[int, Place] = {}
        self._far: set[int] = set()  # who does not see the files that are here
        self._told: set[int] = set()  # who knows what this run does
        self._events: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._stored: OrderedDict[str, tuple[Any, int]] = OrderedDict()
        self._failures = 0
        self._reason = ""
        self._dispatch: Dispatch[Any] | None = None
        self._looked = self._seen = -_LOOK_S

    def run(
        self, work: Callable[[_State, _Item], _Value], items: Iterable[_Item], *, in_order: bool
    ) -> Generator[_Value]:
        """Hand batches of items to whoever has too little to do."""
        steps: Any = work if isinstance(work, ItemWork) else _Plain(work)
        dispatch: Dispatch[_Item] = Dispatch(items, in_order=in_order)
        sent = self._put(steps.sent)
        self._told.clear()
        self._room.take(self)
        self._is_running = True
        try:
            self._meet()
            for worker in self._here:
                dispatch.join(worker)
            while not dispatch.is_finished:
                for worker, batch in dispatch.hand_out():
                    self._send(worker, batch, steps.take, sent, dispatch)
                    while not self._events.empty():  # of those who are done meanwhile
                        self._events.get()()
                if not dispatch.is_finished:
                    self._next_event(dispatch)
                for item, outcome in dispatch.take():
                    yield steps.done(item, outcome)
            self._room.tally.export()
        except BaseException:  # also where the consumer closes this generator
            self._kill()
            raise
        finally:
            self._is_running = False

    def leave(self) -> None:
        """End the workers, so that others have room."""
        if self._is_running:
            raise UsageError("ray: expected one run at a time, found another that is under way")
        self._kill()

    def close(self) -> None:
        """End the workers, which have a moment to remove what they have on their nodes."""
        closed = [self._actors[worker].close.remote() for worker in self._here]
        if closed:
            self._ray.wait(closed, num_returns=len(closed), timeout=_CLOSING_S)
        self._kill()
        self._stored.clear()

    def _kill(self) -> None:
        while self._actors:
            self._ray.kill(self._actors.popitem()[1])
        self._here.clear()
        self._events = SimpleQueue()

    def _put(self, value: Any) -> Any:
        try:
            return self._ray.put(value)
        except TypeError as error:
            reason = str(error.__cause__ or error).splitlines()[0]
            raise UsageError(f"ray: expected work that can be sent, found {reason}") from error

    def _send(
        self,
        worker: int,
        batch: ItemBatch[_Item],
        take: Callable[[_Item], Any],
        sent: Any,
        dispatch: Dispatch[_Item],
    ) -> None:
        beside: list[Any] = []
        items = [take(item) for item in batch.items]
        if worker in self._far or not all(each.is_there for each in files_in(items)):
            items = [packed(_read(item), partial(self._store, beside)) for item in items]
        work = () if worker in self._told else (sent,)
        self._told.add(worker)
        sent_batch = SentBatch(work, is_watched(), column(items))
        call = self._actors[worker].do.remote(sent_batch, *beside)

        def done(future: Future[Any]) -> None:
            if worker not in self._here:
                return
            place = self._here[worker]
            found = self._result(worker, future)
            if worker not in self._here:
                dispatch.lose(worker)
            elif found is None:
                self._far.add(worker)
                self._send(worker, batch, take, sent, dispatch)
            else:
                outcomes, report = values_of(found[0]), found[1]
                self._room.tally.done(place, outcomes, report)
                dispatch.finish(worker, batch, outcomes, report.seconds)

        self._when_done(call, done)

    def _store(self, beside: list[Any], module: Module) -> int | None:
        """Return the place of a module's bytes beside a batch, if they are not with it."""
        if len(module.data) <= SMALL_BYTES:
            return None
        reference, _ = self._stored.pop(module.sha256, (None, 0))
        reference = reference or self._ray.put(module.data)
        self._stored[module.sha256] = reference, len(module.data)
        while sum(size for _, size in self._stored.values()) > STORED_BYTES:
            self._stored.popitem(last=False)
        beside.append(reference)
        return len(beside) - 1

    def _when_done(self, call: Any, then: Callable[[Future[Any]], None]) -> None:
        events = self._events
        call.future().add_done_callback(lambda future: events.put(partial(then, future)))

    def _result(self, worker: int, future: Future[Any]) -> Any:
        """Return a worker's answer; ``None`` where it is gone. Raise its error."""
        errors = self._ray.exceptions
        try:
            return future.result()
        except errors.RayTaskError as error:
            raise error.cause from error
        except errors.RayError as error:
            if place := self._here.pop(worker, None):
                self._room.tally.lost(place)
            self._ray.kill(self._actors.pop(worker))
            self._reason = str(error)
            return None

    def _meet(self) -> None:
        """Have as many workers as there should be, and see what they run, before any has work.

        Who comes later than that is looked at when it does, while the others work.
        """
        self._look()
        start = time.monotonic()
        while len(self._here) < len(self._actors) or not self._here:
            waited = time.monotonic() - start
            if waited > _MEETING_S and self._here:
                return  # for the others there is no room yet
            self._next_event(None)

    def _next_event(self, dispatch: Dispatch[Any] | None) -> None:
        """Wait for something to happen, and take it in."""
        self._dispatch = dispatch
        self._look()
        try:
            event = self._events.get(timeout=_LOOK_S)
        except Empty:
            return
        event()

    def _look(self) -> None:
        now = time.monotonic()
        if now - self._looked < _LOOK_S:
            return
        self._looked = now
        self._room.tally.export()
        self._check_wait(now)
        wanted = self._count or int(self._ray.cluster_resources().get("CPU", 0))
        while len(self._actors) < wanted:
            worker = next(self._numbers)
            self._actors[worker] = actor = self._kind.remote(self._make)
            self._when_done(actor.introduce.remote(), partial(self._introduced, worker))

    def _check_wait(self, now: float) -> None:
        if self._here or self._seen < 0:
            self._seen = now
        elif now - self._seen > self._wait_s:
            raise EnvironmentSetupError(
                f"ray: expected a node with a free CPU within {self._wait_s:g} s, found none; "
                "wait_s lifts the limit"
            )

    def _introduced(self, worker: int, future: Future[Any]) -> None:
        """A worker says where it is and what it runs, or cannot be started."""
        if worker not in self._actors:
            return
        found = self._result(worker, future)
        if found is None:
            self._failed(self._reason)
            return
        node = found["node"]
        for name, value in found["runs"].items():
            if value != (expected := self._facts[name]):
                raise EnvironmentSetupError(
                    f"ray: node {node}: {name}: expected {expected}, as here, found {value}: "
                    "results could not be compared"
                )
        if lack := lack_of_space(found["temporary_folder"], found["free_bytes"]):
            raise EnvironmentSetupError(f"ray: node {node}: {lack}")
        if found["failure"]:
            self._ray.kill(self._actors.pop(worker))
            self._failed(f"node {node}: {found['failure']}")
            return
        self._failures = 0
        self._here[worker] = place = Place(node, found["node_id"], shift_ns(found["there_ns"]))
        self._room.tally.joined(place)
        if self._dispatch:
            self._dispatch.join(worker)

    def _failed(self, reason: str) -> None:
        """A worker could not be started; another is, unless that has been tried often enough."""
        self._failures += 1
        if self._failures > _MOST_FAILURES * (len(self._actors) + 1):
            raise EnvironmentSetupError(f"ray: workers cannot be started: {reason}")


def _read(taken: Any) -> Any:
    """Return an item with its modules, which are read here, or the error as `Made`."""
    try:
        return read_files(taken)
    except InputError as error:
        return Made(error)


class _Plain:
    """Work that says nothing of items that are bad."""

    def __init__(self, work: Callable[[Any, Any], Any]) -> None:
        self.sent: Final = partial(_made, work)

    def take(self, item: Any) -> Any:
        return item

    def done(self, item: Any, outcome: Made[Any]) -> Any:
        del item
        if outcome.error is not None:
            raise outcome.error
        return outcome.made[0]


def _made(work: Callable[[Any, Any], Any], state: Any, item: Any) -> Made[Any]:
    return Made(None, (work(state, item),))

"""Batches of work: their order, who gets which, and the batches of a lost worker.

Nothing here knows where workers are, or what time it is. The largest items are the first of those
that it is given. A batch is as many items as take about `BATCH_S`, and longer where there are very
many workers, for a call to one costs the caller something whatever is in it, but always few enough
that all workers have a share of the rest.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sized
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import islice
from typing import Any, Final, Generic, TypeVar

from mlgo_gym.base import CompilationError, CompilerCrashError, InputError
from mlgo_gym.llvm import Made

_Item = TypeVar("_Item")

BATCH_S: Final = 2.0
"""How long a worker is to be busy with one batch, in seconds, where items are shorter."""

CALL_S: Final = 6e-4
"""The cost of a call to the caller, in seconds of a CPU, as ``benchmarks.cluster`` measures it."""

LEAST_S: Final = 0.05
"""How long at least, however little is left: a call for less would cost more than it evens out.
Where there are very many workers it is as long as the caller needs for a call to each."""

LONG_S: Final = 0.5
"""From how many seconds an item takes on nothing is given out behind what a worker does."""

_CALLS: Final = 0.1
"""The part of the caller's time that calls may take."""

_FIRST: Final = 2
_GROWTH: Final = 2
"""A first batch takes as long as so many calls to each worker, and the next so many times more."""

_AHEAD: Final = 4
_PARTS: Final = 4
_SHORTEST_S: Final = 1e-3
_TRIES: Final = 4
"""How many workers may be lost over one item before it is the item's fault."""


@dataclass(frozen=True, slots=True, eq=False)
class ItemBatch(Generic[_Item]):
    """Items that a worker does one after the other, with their places in the order."""

    places: tuple[int, ...]
    items: tuple[_Item, ...]


class Dispatch(Generic[_Item]):
    """The items of one run, and where they are.

    Args:
        items: in the order in which they are started.
        in_order: outcomes keep that order; otherwise they come as they are made.
    """

    def __init__(self, items: Iterable[_Item], *, in_order: bool) -> None:
        self._left = len(items) if isinstance(items, Sized) else 0
        self._items = iter(items)
        self._in_order = in_order
        self._workers: dict[int, deque[ItemBatch[_Item]]] = {}
        self._grown: dict[int, int] = {}  # how many items each may have next
        self._idle: deque[int] = deque()
        self._busy: deque[int] = deque()
        self._again: list[tuple[int, int, _Item]] = []  # place, how many workers were lost, item
        self._losses: dict[int, int] = {}
        self._exhausted = False
        self._started = self._taken = 0
        self._made: dict[int, tuple[_Item, Made[Any]]] = {}
        self._ready: deque[tuple[_Item, Made[Any]]] = deque()
        self._item_s = BATCH_S  # until it is known

    @property
    def is_finished(self) -> bool:
        """Whether every outcome has been taken."""
        return self._exhausted and self._taken == self._started

    def join(self, worker: int) -> None:
        """A worker can be given something from now on."""
        self._workers[worker] = deque()
        self._idle.append(worker)

    def lose(self, worker: int) -> None:
        """A worker is gone; what it had is done again, first of all."""
        for number, batch in enumerate(self._workers.pop(worker, ())):
            for place, item in zip(batch.places, batch.items, strict=True):
                # Behind the first batch none was under way.
                losses = self._losses.get(place, 0) + (number == 0)
                self._losses[place] = losses
                if losses < _TRIES:
                    heappush(self._again, (place, losses, item))
                else:
                    self._keep([place], [(item, Made(_lost(item, losses)))])

    def hand_out(self) -> Iterator[tuple[int, ItemBatch[_Item]]]:
        """Batches for those who have too little to do."""
        while workers := self._idle or self._busy:
            worker = workers[0]
            batches = self._workers.get(worker)
            if batches is None or len(batches) != (workers is self._busy):
                workers.popleft()  # it is gone, or stands elsewhere
                continue
            if (batch := self._next_batch(self._grown.get(worker, 0))) is None:
                return
            workers.popleft()
            batches.append(batch)
            self._grown[worker] = _GROWTH * len(batch.items)
            self._place(worker)
            yield worker, batch

    def finish(
        self, worker: int, batch: ItemBatch[_Item], outcomes: Iterable[Made[Any]], seconds: float
    ) -> None:
        """A worker has done one of its batches, in so many seconds."""
        if worker not in self._workers:
            return  # it was taken for lost, and others do it
        self._workers[worker].remove(batch)
        self._item_s = seconds / len(batch.places)
        self._place(worker)
        self._keep(batch.places, zip(batch.items, outcomes, strict=True))

    def take(self) -> Iterator[tuple[_Item, Made[Any]]]:
        """The outcomes that are due."""
        while self._ready or self._taken in self._made:
            found = self._ready.popleft() if self._ready else self._made.pop(self._taken)
            self._taken += 1
            yield found

    def _keep(self, places: Iterable[int], found: Iterable[tuple[_Item, Made[Any]]]) -> None:
        if self._losses:
            for place in places:
                self._losses.pop(place, None)
        if self._in_order:
            self._made.update(zip(places, found, strict=True))
        else:
            self._ready.extend(found)

    def _place(self, worker: int) -> None:
        """Put a worker where it waits for something to do.

        There is a second batch, so that nobody waits for the caller between two; of long items
        there is none, since it would wait for this worker while others have nothing.
        """
        load = len(self._workers[worker])
        if not load:
            self._idle.append(worker)
        elif load == 1 and self._item_s < LONG_S:
            self._busy.append(worker)

    def _next_batch(self, grown: int) -> ItemBatch[_Item] | None:
        most = self._most(grown)
        found: list[tuple[int, _Item]] = []
        while self._again and len(found) < most:
            place, losses, item = self._again[0]
            if found and losses:  # alone, so that no other pays for it
                break
            heappop(self._again)
            found.append((place, item))
            if losses:
                most = 0
        ahead = _AHEAD * self._longest() * len(self._workers) - (self._started - self._taken)
        found += self._start(min(most - len(found), ahead))
        if not found:
            return None
        places, items = zip(*found, strict=True)
        return ItemBatch(places, items)

    def _start(self, count: int) -> list[tuple[int, _Item]]:
        """The next items, with their places."""
        found = list(islice(self._items, max(count, 0)))
        self._exhausted |= len(found) < count
        first, self._started = self._started, self._started + len(found)
        self._left -= len(found)
        return list(enumerate(found, first))

    def _most(self, grown: int) -> int:
        """How many items a batch may have, of a worker that had about so many the last time.

        At first nobody has anything, and whoever gets much lets the others wait.
        """
        item_s = max(self._item_s, _SHORTEST_S)
        share = self._left // (_PARTS * max(len(self._workers), 1))
        all_s = CALL_S * len(self._workers)  # for a call to each
        least = int(max(LEAST_S, all_s) / item_s)
        first = int(max(BATCH_S, _FIRST * all_s) / item_s)
        return max(1, least, min(self._longest(), max(first, grown), share))

    def _longest(self) -> int:
        """How many items a batch may have while there are many."""
        seconds = max(BATCH_S, CALL_S * len(self._workers) / _CALLS)
        return max(1, int(seconds / max(self._item_s, _SHORTEST_S)))


def _lost(item: object, losses: int) -> CompilationError | InputError:
    name = str(getattr(item, "name", item))
    message = f"expected a worker that does it, found {losses} that were lost over it"
    return CompilerCrashError(name, message, exit_status=None, stderr_tail=())

"""Compilations as they end, for whoever watches: when each began, its decisions, its worker.

Who watches is told of all that end in this process meanwhile, whatever has started them: the same
place serves rollouts, searches and environments.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from time import monotonic_ns
from typing import ClassVar, Final, NamedTuple

from mlgo_gym.llvm._exchange import Exchange
from mlgo_gym.llvm._timing import Answered, Timing
from mlgo_gym.problems import SentPolicy


@dataclass(frozen=True, slots=True)
class Ended:
    """A compilation that has ended; moments are nanoseconds of ``time.monotonic_ns``.

    Attributes:
        module: its name.
        worker_pid: the process that has compiled.
        decisions: how many were answered.
        answers: those whose moments are known, in their order; what was answered in the worker
            before it died is not.
        is_whole: it came to its end, and was not given up.
        node: where, if on another machine; moments are then about those of this one's clock.
    """

    module: str
    worker_pid: int
    start_ns: int
    end_ns: int
    decisions: int
    answers: tuple[Answered, ...]
    is_whole: bool
    node: str = ""


class Counts(NamedTuple):
    """How many compilations have ended in this process, and how many decisions were in them."""

    compilations: int = 0
    decisions: int = 0


_WATCHERS: Final[list[Callable[[Ended], None]]] = []


@contextmanager
def watching(watch: Callable[[Ended], None]) -> Iterator[None]:
    """Have a function told of every compilation that ends in the block, by its own thread."""
    _WATCHERS.append(watch)
    try:
        yield
    finally:
        _WATCHERS.remove(watch)


def is_watched() -> bool:
    """Whether somebody watches."""
    return bool(_WATCHERS)


def tell(ended: Ended) -> None:
    """Tell whoever watches."""
    for watch in _WATCHERS:
        watch(ended)


def counted() -> Counts:
    """Return the counts of all compilations that have ended in this process."""
    return Watch.counts


def told(sent: SentPolicy) -> SentPolicy:
    """Return a policy for the worker that also keeps its answers where somebody watches."""
    return replace(sent, keep=True) if _WATCHERS else sent


class Watch:
    """One compilation, from its beginning on; tells of its end once."""

    counts: ClassVar[Counts] = Counts()

    def __init__(self, module: str, exchange: Exchange, *, is_timed: bool) -> None:
        self._module = module
        self._exchange = exchange
        self._start_ns = monotonic_ns()
        self._is_over = False
        self._is_watched = is_watched()
        if is_timed or _WATCHERS:
            exchange.timing = Timing()

    def end(self, *, is_whole: bool = False) -> None:
        """Count the compilation, and tell who watches, unless that has been done."""
        if self._is_over:
            return
        self._is_over = True
        decisions = len(self._exchange.advice)
        Watch.counts = Counts(Watch.counts[0] + 1, Watch.counts[1] + decisions)
        if not self._is_watched:
            return
        timing = self._exchange.timing
        ended = Ended(
            self._module,
            self._exchange.worker.pid,
            self._start_ns,
            monotonic_ns(),
            decisions,
            tuple(timing.answers) if timing else (),
            is_whole,
        )
        tell(ended)

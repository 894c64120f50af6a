"""Work on many things: `each` says when, and what becomes of errors, an `Executor` where."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import FIRST_COMPLETED, CancelledError, Future, ThreadPoolExecutor, wait
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from queue import SimpleQueue
from typing import Any, Final, Generic, Protocol, Self, TypeVar

from mlgo_gym.base import CompilationError, InputError, OptionsError
from mlgo_gym.corpus import read_files

_Item = TypeVar("_Item")
_Value = TypeVar("_Value")

_MOST_JOBS: Final = 4096
_AHEAD: Final = 4
"""How many items for each worker are started before the first result is taken."""


class State(Protocol):
    """The state that a worker keeps from one item to the next, such as a `Compiler`."""

    def interrupt(self) -> None:
        """End, from another thread, what is under way; nothing follows but `close`."""

    def close(self) -> None:
        """Release everything; nothing is under way."""


_State = TypeVar("_State", bound=State)


@dataclass(frozen=True, slots=True)
class Done(Generic[_Item, _Value]):
    """An item with its value, or its error.

    Attributes:
        item: the item.
        error: why there is no value; ``None`` where there is one.

    >>> Done("digest.c", None, ("compiled",)).value
    'compiled'
    """

    item: _Item
    error: CompilationError | InputError | None
    _made: tuple[_Value, ...]

    @property
    def value(self) -> _Value:
        """The value that the work returned.

        Raises:
            CompilationError: the work raised it.
            InputError: the same.
        """
        if self.error is not None:
            raise self.error
        return self._made[0]


class Executor(ABC, Generic[_State]):
    """Workers, each with a state that is made when it is first needed; a context manager.

    >>> from mlgo_gym import Compiler
    >>> with workers(Compiler) as here:
    ...     list(here.run(lambda compiler, number: number + 1, [1, 2], in_order=True))
    [2, 3]
    """

    @abstractmethod
    def run(
        self, work: Callable[[_State, _Item], _Value], items: Iterable[_Item], *, in_order: bool
    ) -> Generator[_Value]:
        """Yield a function's value for each item, one call of this after the other.

        What the function raises ends everything, and so does closing the generator: what is under
        way is interrupted, and waited for, before the generator ends.

        Args:
            work: called with a worker's state and an item.
            items: in the order in which they are started.
            in_order: the values keep that order; otherwise they come as they are made.
        """

    @abstractmethod
    def close(self) -> None:
        """Close the states; safe to call twice."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Engine(Protocol):
    """Makes executors, for work to be done elsewhere than in threads; given as ``jobs=``.

    >>> from mlgo_gym import Compiler
    >>> def engine(state):
    ...     return workers(state, jobs=2)
    >>> done = each([1, 2], lambda compiler, item: item + 1, Compiler, jobs=engine, in_order=True)
    >>> [each.value for each in done]
    [2, 3]
    """

    def __call__(self, state: Callable[[], _State], /) -> Executor[_State]:
        """An executor whose workers have states that this function makes."""


Jobs = int | Engine
"""How many workers there are, above 0, or what makes them."""


def workers(state: Callable[[], _State], jobs: Jobs = 1) -> Executor[_State]:
    """Workers that stay open for several calls of `each`, one after the other.

    One worker works in the caller's thread, several in as many threads.

    Args:
        state: makes what each worker keeps.
        jobs: how many there are.

    Raises:
        OptionsError: ``jobs`` is neither above 0 nor makes executors, or is more than there can be.

    >>> from mlgo_gym import Compiler
    >>> with workers(Compiler, jobs=1) as executor:
    ...     list(executor.run(lambda compiler, item: 2 * item, [1, 2], in_order=True))
    [2, 4]
    """
    if callable(jobs):
        return jobs(state)
    if not isinstance(jobs, int) or jobs < 1:
        raise OptionsError(f"jobs: expected a number above 0, found {jobs!r}")
    if jobs > _MOST_JOBS:
        raise OptionsError(f"jobs: expected at most {_MOST_JOBS:,}, found {jobs:,}")
    return _Threads(state, jobs) if jobs > 1 else _ThisThread(state)


def each(
    items: Iterable[_Item],
    work: Callable[[_State, Any], _Value],
    state: Callable[[], _State] | Executor[_State],
    *,
    read: Callable[[_Item], Any] | None = None,
    jobs: Jobs = 1,
    size: Callable[[_Item], float] | None = None,
    in_order: bool = False,
) -> Generator[Done[_Item, _Value]]:
    """Call a function for each item; yield its values, or its errors.

    An item that cannot be compiled, or not be used, is reported, and the others go on. What else
    the function raises ends everything. Closing the generator early interrupts what is under way;
    once it has ended, no process and no thread is left.

    Args:
        items: what there is to do.
        work: called once with each item, and with the state of the worker that has it. Where the
            workers are elsewhere, it is sent there, and so is what makes the state.
        state: makes what a worker keeps, or workers that are open already and stay open.
        read: makes of an item, on this machine, what the work is called with. Workers themselves
            read what `Packages.file` has left in it.
        jobs: how many workers there are, where they are not open already.
        size: about how long an item takes, in any unit. The largest are started first, so that
            nobody waits for the last one, unless the order is given.
        in_order: items are started, and come out, in their order; otherwise as they are done.

    Raises:
        OptionsError: ``jobs`` is not above 0.

    >>> from mlgo_gym import SAMPLE_CORPUS, Compiler, Corpus
    >>> corpus = Corpus.load(SAMPLE_CORPUS)
    >>> def code(compiler: Compiler, name: str) -> int:
    ...     return compiler.compile_module(corpus[name]).text_size_bytes
    >>> [done] = each(["digest.c"], code, Compiler)
    >>> done.item, done.value > 1000
    ('digest.c', True)
    """
    if size is not None and not in_order:
        items = sorted(items, key=size, reverse=True)
    tried = ItemWork(work, read)
    if isinstance(state, Executor):
        return state.run(tried, items, in_order=in_order)
    return _run_and_close(workers(state, jobs), tried, items, in_order=in_order)


def _run_and_close(
    executor: Executor[_State],
    work: Callable[[_State, _Item], _Value],
    items: Iterable[_Item],
    *,
    in_order: bool,
) -> Generator[_Value]:
    with executor:
        yield from executor.run(work, items, in_order=in_order)


@dataclass(frozen=True, slots=True)
class Made(Generic[_Value]):
    """The outcome of an item, wherever it was worked on: a value, or an error."""

    error: CompilationError | InputError | None
    made: tuple[_Value, ...] = ()


class ItemWork(Generic[_State, _Item, _Value]):
    """Work that ends well where an item is bad, in three steps, of which the second can be sent."""

    def __init__(
        self, work: Callable[[_State, Any], _Value], read: Callable[[_Item], Any] | None
    ) -> None:
        self._work = work
        self._read = read

    def __call__(self, state: _State, item: _Item) -> Done[_Item, _Value]:
        return self.done(item, tried(self._work, state, self.take(item)))

    def take(self, item: _Item) -> Any:
        """Return the work's argument, or the error as `Made`."""
        try:
            return item if self._read is None else self._read(item)
        except (CompilationError, InputError) as error:
            return Made(error)

    @property
    def sent(self) -> Callable[[_State, Any], Made[_Value]]:
        """Return the outcome of the item that was sent."""
        return partial(tried, self._work)

    def done(self, item: _Item, outcome: Made[_Value]) -> Done[_Item, _Value]:
        """Return the item with its outcome."""
        return Done(item, outcome.error, outcome.made)


def tried(work: Callable[[_State, Any], _Value], state: _State, taken: Any) -> Made[_Value]:
    """The outcome of work on what was taken, which may be one already."""
    if isinstance(taken, Made):
        return taken
    try:
        return Made(None, (work(state, read_files(taken)),))
    except (CompilationError, InputError) as error:
        return Made(error)


class _ThisThread(Executor[_State]):
    """One worker: whoever asks for the next value does the work."""

    def __init__(self, state: Callable[[], _State]) -> None:
        self._make = state
        self._state: _State | None = None

    def run(
        self, work: Callable[[_State, _Item], _Value], items: Iterable[_Item], *, in_order: bool
    ) -> Generator[_Value]:
        """Work on one item after the other."""
        del in_order  # there is but one
        if self._state is None:
            self._state = self._make()
        state = self._state
        yield from (work(state, item) for item in items)

    def close(self) -> None:
        """Close the state."""
        if self._state is not None:
            self._state.close()
        self._state = None


class _Threads(Executor[_State]):
    """Several workers, each in a thread; they run ahead of the consumer, but not by far."""

    def __init__(self, state: Callable[[], _State], jobs: int) -> None:
        self._make = state
        self._jobs = jobs
        self._states: list[_State] = []
        self._open()

    def _open(self) -> None:
        self._idle: SimpleQueue[_State | None] = SimpleQueue()
        self._pool = ThreadPoolExecutor(self._jobs, "mlgo-gym")

    def run(
        self, work: Callable[[_State, _Item], _Value], items: Iterable[_Item], *, in_order: bool
    ) -> Generator[_Value]:
        """Hand items to whoever is idle."""
        while len(self._states) < self._jobs:
            state = self._make()
            self._idle.put(state)
            self._states.append(state)
        ahead: deque[Future[_Value]] = deque()
        try:
            for item in items:
                ahead.append(self._pool.submit(_run_idle, self._idle, work, item))
                if len(ahead) >= _AHEAD * self._jobs:
                    yield _next_of(ahead, in_order=in_order).result()
            while ahead:
                yield _next_of(ahead, in_order=in_order).result()
        except BaseException:  # also where the consumer closes this generator
            self._interrupt()
            raise

    def close(self) -> None:
        """End the threads and close the states."""
        self._pool.shutdown()
        with ExitStack() as stack:
            while self._states:
                stack.callback(self._states.pop().close)

    def _interrupt(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)
        for state in self._states:
            state.interrupt()
        # A signal may have come where nobody holds the future of what is under way.
        for _ in self._states:
            self._idle.get()
        for _ in range(self._jobs):
            self._idle.put(None)
        self.close()
        self._open()  # for whoever comes next


def _run_idle(
    idle: SimpleQueue[_State | None], work: Callable[[_State, _Item], _Value], item: _Item
) -> _Value:
    if (state := idle.get()) is None:
        raise CancelledError
    try:
        return work(state, item)
    finally:
        idle.put(state)


def _next_of(ahead: deque[Future[_Value]], *, in_order: bool) -> Future[_Value]:
    """Take the first, or whichever is finished first."""
    if in_order:
        return ahead.popleft()
    finished = wait(ahead, return_when=FIRST_COMPLETED).done
    future = next(future for future in ahead if future in finished)
    ahead.remove(future)
    return future

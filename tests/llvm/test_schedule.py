"""The schedule: order, errors, states, and that nothing is left however it ends."""

from __future__ import annotations

import signal
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, suppress
from functools import partial
from queue import SimpleQueue
from time import sleep
from typing import Any, ClassVar, TypeVar

import psutil
import pytest

from mlgo_gym.corpus._corpus import Corpus
from mlgo_gym.errors import CompilerCrashError, InputError, ModuleError, OptionsError
from mlgo_gym.llvm._compiler import Compiler
from mlgo_gym.llvm._schedule import Done, Engine, Executor, each, workers
from mlgo_gym.testing import ContractError, check_executor
from tests.waiting import wait_for

_S = TypeVar("_S", bound=Any)
_I = TypeVar("_I")
_V = TypeVar("_V")


class Desk:
    """A state that counts what is done with it."""

    def __init__(self, desks: list[Desk]) -> None:
        self.items: list[object] = []
        self.closed = 0
        self.interrupted = threading.Event()
        desks.append(self)

    def wait(self) -> None:
        """Do something that ends only when it is interrupted."""
        if self.interrupted.wait(60):
            raise CompilerCrashError("desk", "interrupted", exit_status=None, stderr_tail=())
        raise AssertionError("nobody interrupts")

    def interrupt(self) -> None:
        self.interrupted.set()

    def close(self) -> None:
        self.closed += 1


@pytest.fixture
def desks() -> list[Desk]:
    return []


@pytest.fixture(autouse=True)
def nothing_is_left(desks: list[Desk]) -> Iterator[None]:
    """No thread and no child process, and every state was closed once."""
    before = psutil.Process().children()
    yield
    assert names_of_workers() == []
    assert psutil.Process().children() == before
    assert [desk.closed for desk in desks] == [1] * len(desks)


def names_of_workers() -> list[str]:
    """Of the threads that there are."""
    return [each.name for each in threading.enumerate() if "mlgo-gym" in each.name]


def double(desk: Desk, item: int) -> int:
    desk.items.append(item)
    return 2 * item


@pytest.mark.parametrize("jobs", [1, 2, 3])
def test_workers_here_keep_the_contract(jobs: int) -> None:
    check_executor(jobs)


def test_the_order_of_the_items(desks: list[Desk]) -> None:
    """Whichever is done first."""
    other_is_done = threading.Event()

    def work(_desk: Desk, item: int) -> None:
        if item:
            other_is_done.set()
        assert other_is_done.wait(60)

    found = each((0, 1), work, partial(Desk, desks), jobs=2, in_order=True)
    assert [done.item for done in found] == [0, 1]


def test_the_order_in_which_they_are_done(desks: list[Desk]) -> None:
    other_is_taken = threading.Event()

    def work(_desk: Desk, item: int) -> None:
        assert item == 1 or other_is_taken.wait(60)

    found = each((0, 1), work, partial(Desk, desks), jobs=2)
    assert next(found).item == 1
    other_is_taken.set()
    assert [done.item for done in found] == [0]


def test_the_largest_are_started_first(desks: list[Desk]) -> None:
    items = ["bb", "a", "dddd", "ccc"]
    found = each(items, lambda _, item: item, partial(Desk, desks), size=len)
    assert [done.value for done in found] == ["dddd", "ccc", "bb", "a"]
    given = each(items, lambda _, item: item, partial(Desk, desks), size=len, in_order=True)
    assert [done.value for done in given] == items


def test_items_are_asked_for_as_results_are_taken(desks: list[Desk]) -> None:
    """A consumer that falls behind does not fill the memory."""
    items = iter(range(1000))
    with closing(each(items, double, partial(Desk, desks), jobs=2)) as found:
        next(found)
        assert next(items) < 20


@pytest.mark.parametrize("jobs", [1, 2])
def test_what_work_is_called_with_is_read_from_items(desks: list[Desk], jobs: int) -> None:
    """An item that cannot be read is reported, and its worker goes on."""

    def read(item: int) -> int:
        if item == 1:
            raise ModuleError("one", "cannot be read")
        return 10 * item

    state = partial(Desk, desks)
    found = list(each(range(3), double, state, read=read, jobs=jobs, in_order=True))
    assert [(done.item, str(done.error)) for done in found] == [
        (0, "None"), (1, "module 'one': cannot be read"), (2, "None")
    ]  # fmt: skip
    assert (found[0].value, found[2].value) == (0, 40)


def test_a_signal_where_a_result_is_waited_for(desks: list[Desk]) -> None:
    """What is under way has ended before its state is closed, however long that takes."""
    asked, ended = threading.get_ident(), list[bool]()

    def work(desk: Desk, _item: int) -> None:
        signal.pthread_kill(asked, signal.SIGINT)
        try:
            desk.wait()
        finally:
            sleep(0.2)  # ends late: LLVM's child has to be reaped
            ended.append(desk.closed == 0)

    # What a shell starts with & ignores it.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            list(each([1], work, partial(Desk, desks), jobs=2, in_order=True))
    finally:
        signal.signal(signal.SIGINT, before)
    assert ended == [True]
    wait_for(lambda: not names_of_workers())  # interrupted as it starts one, a pool waits for none


@pytest.mark.usefixtures("compiler")  # the process that workers are forks of stays
def test_closing_early_ends_compilers(sample: Corpus) -> None:
    def compiled(compiler: Compiler, name: str) -> int:
        return compiler.compile_module(sample[name]).text_size_bytes

    found = each(sample.names, compiled, partial(Compiler, timeout_s=60), jobs=2)
    assert next(found).value > 0
    assert psutil.Process().children()
    found.close()


def test_each_worker_has_one_state(desks: list[Desk]) -> None:
    all_at_once = threading.Barrier(3)

    def work(desk: Desk, item: int) -> None:
        desk.items.append(item)
        all_at_once.wait(60)

    list(each(range(30), work, partial(Desk, desks), jobs=3))
    assert [len(desk.items) for desk in desks] == [10, 10, 10]


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_state_that_cannot_be_made(desks: list[Desk], jobs: int) -> None:
    def make() -> Desk:
        if len(desks) == jobs - 1:
            raise InputError("no room for another desk")
        return Desk(desks)

    with pytest.raises(InputError, match="^no room for another desk$"):
        list(each(range(3), double, make, jobs=jobs))


class Backwards(Executor[_S]):
    """Somebody's own engine: it begins at the end."""

    def __init__(self, state: Callable[[], _S]) -> None:
        self._state = state()

    def run(
        self, work: Callable[[_S, _I], _V], items: Iterable[_I], *, in_order: bool
    ) -> Generator[_V]:
        here = list(items)
        for item in here[:: 1 if in_order else -1]:
            yield work(self._state, item)

    def close(self) -> None:
        self._state.close()


def test_an_engine_of_somebody_else(desks: list[Desk]) -> None:
    def work(desk: Desk, item: int) -> int:
        if item == 2:
            raise ModuleError("two", "expected another")
        return double(desk, item)

    found: list[Done[int, int]] = list(each(range(3), work, partial(Desk, desks), jobs=Backwards))
    assert [done.item for done in found] == [2, 1, 0]
    assert str(found[0].error) == "module 'two': expected another"
    given = each(range(3), double, partial(Desk, desks), jobs=Backwards, in_order=True)
    assert [done.value for done in given] == [0, 2, 4]
    with Backwards(partial(Desk, desks)) as executor:
        assert [done.value for done in each(range(3), double, executor)] == [4, 2, 0]


class Wrapped(Executor[_S]):
    """Threads, in somebody's own hands."""

    def __init__(self, state: Callable[[], _S]) -> None:
        self.made = workers(state, 2)

    def run(
        self, work: Callable[[_S, Any], _V], items: Iterable[Any], *, in_order: bool
    ) -> Generator[_V]:
        yield from self.made.run(work, items, in_order=in_order)

    def close(self) -> None:
        self.made.close()


class Losing(Wrapped[_S]):
    def run(
        self, work: Callable[[_S, Any], _V], items: Iterable[Any], *, in_order: bool
    ) -> Generator[_V]:
        yield from list(super().run(work, items, in_order=in_order))[1:]


class Repeating(Wrapped[_S]):
    """Tries items once before it does them."""

    def run(
        self, work: Callable[[_S, Any], _V], items: Iterable[Any], *, in_order: bool
    ) -> Generator[_V]:
        def twice(state: _S, item: Any) -> _V:
            work(state, item)
            return work(state, item)

        yield from super().run(twice, items, in_order=in_order)


class Unordered(Wrapped[_S]):
    def run(
        self, work: Callable[[_S, Any], _V], items: Iterable[Any], *, in_order: bool
    ) -> Generator[_V]:
        found = list(super().run(work, items, in_order=True))
        yield from found[::-1] if in_order else found


class Tolerant(Wrapped[_S]):
    """Takes any error for the end of the items."""

    def run(
        self, work: Callable[[_S, Any], _V], items: Iterable[Any], *, in_order: bool
    ) -> Generator[_V]:
        with suppress(ArithmeticError):
            yield from super().run(work, items, in_order=in_order)


class Several(Wrapped[_S]):
    """A state for each run."""

    def run(
        self, work: Callable[[_S, Any], _V], items: Iterable[Any], *, in_order: bool
    ) -> Generator[_V]:
        yield from super().run(work, items, in_order=in_order)
        super().close()
        self.made._open()  # type: ignore[attr-defined]


class Many(Wrapped[_S]):
    """A worker more than there may be."""

    def __init__(self, state: Callable[[], _S]) -> None:
        self.made = workers(state, 3)


class Sharing(Wrapped[_S]):
    """One state for all its threads."""

    def __init__(self, state: Callable[[], _S]) -> None:
        self.state = state()
        super().__init__(lambda: self.state)


class Patient(Executor[_S]):
    """Interrupts nobody."""

    def __init__(self, state: Callable[[], _S]) -> None:
        self._states = [state() for _ in range(2)]
        self._idle: SimpleQueue[_S] = SimpleQueue()
        for one in self._states:
            self._idle.put(one)

    def run(
        self, work: Callable[[_S, Any], _V], items: Iterable[Any], *, in_order: bool
    ) -> Generator[_V]:
        def do(item: Any) -> _V:
            state = self._idle.get()
            try:
                return work(state, item)
            finally:
                self._idle.put(state)

        del in_order
        with ThreadPoolExecutor(2) as pool:
            ahead: deque[Future[_V]] = deque()
            for item in items:
                ahead.append(pool.submit(do, item))
                if len(ahead) > 2:
                    yield ahead.popleft().result()
            while ahead:
                yield ahead.popleft().result()

    def close(self) -> None:
        while self._states:
            self._states.pop().close()


class Open(Wrapped[_S]):
    """Is closed only where a test does so."""

    left: ClassVar[list[Executor[Any]]] = []

    def close(self) -> None:
        self.left.append(self.made)


class Again(Wrapped[_S]):
    """Closes its states as often as it is closed."""

    def close(self) -> None:
        self.states = getattr(self, "states", None) or list(self.made._states)  # type: ignore[attr-defined]
        self.made.close()
        for one in self.states:
            one.close()


@pytest.mark.parametrize(
    ("engine", "message"),
    [
        (Losing, "items: expected \\[0, 1, .*, found \\["),
        (Repeating, "times that items were done: expected 20, found 40"),
        (Unordered, "items in order: expected \\[0, 1, .*, found \\[19, "),
        (Several, "states that were closed meanwhile: expected \\[\\], found \\['closed', "),
        (Many, "states: expected at most 2, found 3"),
        (Sharing, "items of a state that was at work: expected \\[\\], found \\['shared'"),
        (Tolerant, "an error that is no item's: expected ZeroDivisionError, found none"),
        (Patient, "work that was not interrupted after an error .*: expected \\[\\], found "),
        (Open, "open states once an executor was closed: expected none, found 2"),
        (Again, "states that were closed twice .*: expected \\[\\], found \\['closed twice'"),
    ],
)
def test_the_suite_finds_what_is_broken(engine: Engine, message: str) -> None:
    try:
        with pytest.raises(ContractError, match=f"^{message}"):
            check_executor(engine, workers=2, within_s=0.2)
    finally:
        while Open.left:
            Open.left.pop().close()


def test_no_workers_are_an_error(desks: list[Desk]) -> None:
    for jobs in (0, -1):
        with pytest.raises(OptionsError) as error:
            each((), double, partial(Desk, desks), jobs=jobs)
        assert str(error.value) == f"jobs: expected a number above 0, found {jobs}"
    with pytest.raises(OptionsError, match="^jobs: expected at most 4,096, found 4,097$"):
        workers(Compiler, 4097)

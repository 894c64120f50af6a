"""The schedule: order, errors, states, and that nothing is left however it ends."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing
from functools import partial
from time import sleep
from typing import Any, TypeVar

import psutil
import pytest

from mlgo_gym.corpus._corpus import Corpus
from mlgo_gym.errors import CompilerCrashError, InputError, ModuleError, OptionsError
from mlgo_gym.llvm._compiler import Compiler
from mlgo_gym.llvm._schedule import Done, Executor, each, workers
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


@pytest.mark.parametrize("jobs", [1, 3])
def test_every_item_is_done(desks: list[Desk], jobs: int) -> None:
    found = list(each(range(50), double, partial(Desk, desks), jobs=jobs))
    assert sorted((done.item, done.value) for done in found) == [(n, 2 * n) for n in range(50)]
    assert all(done.error is None for done in found)


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
def test_an_item_that_fails_is_reported_and_the_others_go_on(desks: list[Desk], jobs: int) -> None:
    def picky(desk: Desk, item: int) -> int:
        if item == 1:
            raise ModuleError("one", "expected another")
        if item == 2:
            raise CompilerCrashError("two", "gone", exit_status=-9, stderr_tail=())
        return double(desk, item)

    found = list(each(range(4), picky, partial(Desk, desks), jobs=jobs, in_order=True))
    assert [str(done.error) for done in found] == [
        "None", "module 'one': expected another", "module 'two': gone", "None"
    ]  # fmt: skip
    assert (found[0].value, found[3].value) == (0, 6)
    with pytest.raises(ModuleError, match="^module 'one': expected another$"):
        _ = found[1].value


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


@pytest.mark.parametrize("jobs", [1, 2])
def test_another_error_ends_everything(desks: list[Desk], jobs: int) -> None:
    def divide(desk: Desk, item: int) -> float:
        if item > 1:
            desk.wait()
        return 1 / item

    with pytest.raises(ZeroDivisionError):
        list(each(range(100), divide, partial(Desk, desks), jobs=jobs, in_order=True))
    assert len(desks) == jobs


def test_closing_early_interrupts_what_is_under_way(desks: list[Desk]) -> None:
    def work(desk: Desk, item: int) -> None:
        desk.items.append(item)
        if item:
            desk.wait()

    found = each(range(100), work, partial(Desk, desks), jobs=3)
    assert next(found).item == 0
    found.close()
    assert all(desk.interrupted.is_set() for desk in desks)
    assert sum(len(desk.items) for desk in desks) < 10


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


@pytest.mark.parametrize("jobs", [1, 2])
def test_workers_that_stay_open(desks: list[Desk], jobs: int) -> None:
    with workers(partial(Desk, desks), jobs) as executor:
        for _ in range(3):
            assert sum(done.value for done in each(range(8), double, executor)) == 56
        assert [desk.closed for desk in desks] == [0] * jobs
        interrupted = each(range(100), double, executor)
        next(interrupted)
        interrupted.close()
        assert sum(done.value for done in each(range(8), double, executor)) == 56
    executor.close()  # twice


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


def test_no_workers_are_an_error(desks: list[Desk]) -> None:
    for jobs in (0, -1):
        with pytest.raises(OptionsError) as error:
            each((), double, partial(Desk, desks), jobs=jobs)
        assert str(error.value) == f"jobs: expected a number above 0, found {jobs}"

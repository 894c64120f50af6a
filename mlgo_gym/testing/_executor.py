"""The contract of executors: workers here or anywhere, with a state each.

States leave word in files, since they may be in other processes, or on other machines. What a
state or its work holds is a lock on a file, which goes with its process however that ends.
"""

from __future__ import annotations

import fcntl
import os
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final
from uuid import uuid4

from mlgo_gym.base import CompilerCrashError, ModuleError
from mlgo_gym.llvm import Done, Executor, Jobs, each
from mlgo_gym.llvm import workers as opened
from mlgo_gym.testing._contract import ContractError, described, expect, expect_error

_ITEMS: Final = 20
_MANY: Final = 10_000
_LOOK_S: Final = 0.01


def check_executor(
    engine: Jobs,
    *,
    workers: int | None = None,
    folder: str | Path | None = None,
    within_s: float = 30.0,
) -> None:
    """Check that executors keep the contract of `mlgo_gym.llvm.Executor`.

    Every item is done once, in order if asked for. An item that fails is reported, and the others
    go on. Any other error, and closing the values early, interrupts what is under way and leaves
    nothing. Each worker has one state, which it keeps from one call to the next. Closing twice is
    safe.

    States and work can be pickled, for workers in other processes.

    Args:
        engine: makes executors, or is a number of workers in this process.
        workers: the most workers that there may be; ``None`` does not count those of an engine.
        folder: where states leave word, a place that workers share with this process; ``None`` is
            a temporary folder.
        within_s: how long what is interrupted may take to end, in seconds.

    Raises:
        ContractError: a clause is broken.

    >>> check_executor(2)
    """
    most = engine if isinstance(engine, int) else workers
    with TemporaryDirectory(prefix="mlgo-gym-", dir=folder, ignore_cleanup_errors=True) as made:
        check = _Check(engine, most, Path(made), within_s)
        with opened(check.state, engine) as executor:
            check.items(executor)
            check.order(executor)
            check.plain_work(executor)
            check.bad_items(executor)
            check.states()
            check.other_errors(executor)
            check.items(executor)
            check.closing_early(executor)
            check.items(executor)
            executor.close()
        check.nothing_is_open("once an executor was closed")
        check.own_workers()


class _State:
    """A worker's state: a log, which is locked while the state is open, and another lock."""

    def __init__(self, folder: str) -> None:
        self.name: Final = uuid4().hex
        self._path = Path(folder) / f"{self.name}.open"
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND
        self._log = os.open(self._path, flags)
        self._busy = os.open(self._path.with_suffix(".busy"), flags)
        fcntl.flock(self._log, fcntl.LOCK_EX)
        self._alone = threading.Lock()
        self._interrupted = threading.Event()
        self._is_closed = False

    def do(self, item: object, most_s: float = 0.0, *, pause_s: float = 0.0) -> None:
        """Note an item, and be at work for a pause, or until interrupted, but no longer."""
        self._note(f"item {item}")
        if not self._alone.acquire(blocking=False):
            self._note("shared")
            return
        try:
            fcntl.flock(self._busy, fcntl.LOCK_EX)
            time.sleep(pause_s)
            if most_s and not self._interrupted.wait(most_s):
                self._note("not interrupted")
            if self._interrupted.is_set():
                raise CompilerCrashError("state", "interrupted", exit_status=None, stderr_tail=())
        finally:
            fcntl.flock(self._busy, fcntl.LOCK_UN)
            self._alone.release()

    def interrupt(self) -> None:
        self._interrupted.set()

    def close(self) -> None:
        if self._is_closed:
            with suppress(FileNotFoundError), self._path.open("a") as log:
                log.write("closed twice\n")
            return
        self._note("closed at work" if self._alone.locked() else "closed")
        self._is_closed = True
        with self._alone:
            os.close(self._busy)
            os.close(self._log)

    def _note(self, text: str) -> None:
        os.write(self._log, f"{text}\n".encode())


def _double(state: _State, item: int) -> tuple[str, int]:
    """Every fifth item takes longer than the others."""
    state.do(item, pause_s=0.0 if item % 5 else 0.01)
    return state.name, 2 * item


def _picky(state: _State, item: int) -> tuple[str, int]:
    if item == 1:
        raise ModuleError("one", "expected another")
    if item == 2:
        raise CompilerCrashError("two", "gone", exit_status=-9, stderr_tail=())
    return _double(state, item)


def _first_alone(most_s: float, state: _State, item: int) -> tuple[str, int]:
    """Items after the first end only when they are interrupted."""
    state.do(item, most_s if item else 0.0)
    return state.name, item


def _divide(most_s: float, state: _State, item: int) -> float:
    """The item 1 is an error, and those after it end only when they are interrupted."""
    state.do(item, most_s if item > 1 else 0.0)
    return 1 / (item - 1)


@dataclass(frozen=True, slots=True)
class _Check:
    engine: Jobs
    most: int | None
    folder: Path
    within_s: float

    @property
    def state(self) -> Callable[[], _State]:
        return partial(_State, str(self.folder))

    def items(self, executor: Executor[_State]) -> None:
        """Every item is done once."""
        before = len(self._notes("item"))
        done = self._done("items", range(_ITEMS), _double, executor)
        expect("items", list(range(_ITEMS)), sorted(each.item for each in done))
        for one in done:
            expect(f"error of item {one.item}", None, one.error)
            expect(f"value of item {one.item}", 2 * one.item, one.value[1])
        expect("times that items were done", _ITEMS, len(self._notes("item")) - before)

    def order(self, executor: Executor[_State]) -> None:
        """Values keep the order of the items, where that is asked for."""
        done = self._done("items in order", range(_ITEMS), _double, executor, in_order=True)
        expect("items in order", list(range(_ITEMS)), [each.item for each in done])

    def plain_work(self, executor: Executor[_State]) -> None:
        """`Executor.run` gives what the work returns."""
        values = list(executor.run(_double, range(_ITEMS), in_order=True))
        expect("values of run", [2 * item for item in range(_ITEMS)], [each[1] for each in values])
        expect("values of no items", [], list(executor.run(_double, [], in_order=False)))

    def bad_items(self, executor: Executor[_State]) -> None:
        """An item that cannot be used or compiled is reported, and the others go on."""
        done = self._done("items that fail", range(5), _picky, executor, in_order=True)
        errors = [type(each.error).__name__ for each in done]
        expected = ["NoneType", "ModuleError", "CompilerCrashError", "NoneType", "NoneType"]
        expect("errors of items", expected, errors)
        expect("message of an item's error", "module 'one': expected another", str(done[1].error))
        values = [each.value[1] for each in done if each.error is None]
        expect("values beside items that fail", [0, 6, 8], values)

    def states(self) -> None:
        """A state is one worker's, and there are no more than workers."""
        expect("items of a state that was at work", [], self._notes("shared"))
        expect("states that were closed meanwhile", [], self._notes("closed"))
        count = len(list(self.folder.glob("*.open")))
        if self.most is not None and count > self.most:
            raise ContractError(f"states: expected at most {self.most}, found {count}")

    def other_errors(self, executor: Executor[_State]) -> None:
        """Any other error of the work ends everything."""
        work = partial(_divide, self.within_s)
        expect_error(
            "an error that is no item's",
            ZeroDivisionError,
            lambda: list(each(range(_MANY), work, executor, in_order=True)),
        )
        self._nothing_is_under_way("after an error that is no item's")

    def closing_early(self, executor: Executor[_State]) -> None:
        """Closing the values interrupts what is under way; nothing else is started."""
        work = partial(_first_alone, self.within_s)
        before = len(self._notes("item"))
        with closing(each(range(_MANY), work, executor)) as found:
            expect("the first item that is done", 0, next(found).item)
        self._nothing_is_under_way("after closing early")
        started = len(self._notes("item")) - before
        if started == _MANY:
            raise ContractError(f"items after closing early: expected fewer, found all {started}")

    def own_workers(self) -> None:
        """Workers that `each` opens are closed with its values, at the end or early."""
        work = partial(_first_alone, self.within_s)
        done = list(each(range(_ITEMS), _double, self.state, jobs=self.engine))
        expect("items of workers of its own", list(range(_ITEMS)), sorted(d.item for d in done))
        self.nothing_is_open("once all values were taken")
        with closing(each(range(_MANY), work, self.state, jobs=self.engine)) as found:
            next(found)
        self.nothing_is_open("after closing early")

    def nothing_is_open(self, when: str) -> None:
        """No state is open, and none was closed while it was at work."""
        self._nothing_is_under_way(when)
        self._none_is_locked(f"open states {when}", "*.open")

    def _nothing_is_under_way(self, when: str) -> None:
        self._none_is_locked(f"work under way {when}", "*.busy")
        expect(f"work that was not interrupted {when}", [], self._notes("not interrupted"))
        for how in ("at work", "twice"):
            expect(f"states that were closed {how} {when}", [], self._notes(f"closed {how}"))

    def _done(
        self,
        clause: str,
        items: Iterable[int],
        work: Callable[[_State, int], tuple[str, int]],
        executor: Executor[_State],
        *,
        in_order: bool = False,
    ) -> list[Done[int, tuple[str, int]]]:
        try:
            return list(each(items, work, executor, in_order=in_order))
        except Exception as error:
            raise ContractError(f"{clause}: expected values, found {described(error)}") from error

    def _notes(self, beginning: str) -> list[str]:
        lines = (path.read_text().splitlines() for path in self.folder.glob("*.open"))
        return [line for each in lines for line in each if line.startswith(beginning)]

    def _none_is_locked(self, clause: str, names: str) -> None:
        end = time.monotonic() + self.within_s
        while locked := [path.name for path in self.folder.glob(names) if _is_locked(path)]:
            if time.monotonic() > end:
                raise ContractError(f"{clause}: expected none, found {len(locked)}")
            time.sleep(_LOOK_S)


def _is_locked(path: Path) -> bool:
    descriptor = os.open(path, os.O_RDWR)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False

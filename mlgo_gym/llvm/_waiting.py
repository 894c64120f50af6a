"""Waiting for several compilations at once, in one thread.

What has to wait for compilations is written as a generator that yields the one it waits for before
it asks for an observation. Alone it runs to its end as it is, since asking waits; several are
resumed as their compilations become ready.
"""

from __future__ import annotations

import select
from collections.abc import Generator, Sequence
from time import monotonic
from typing import Final, Generic, TypeVar

from mlgo_gym.errors import MlgoGymError
from mlgo_gym.llvm._compilation import Compilation

_LONGEST_POLL_S: Final = 3600.0
_Compilation = TypeVar("_Compilation", bound=Compilation)
_Result = TypeVar("_Result")

Steps = Generator[Compilation, None, _Result]
"""Work that yields the compilation that it is about to ask for an observation."""


def wait_for_any(compilations: Sequence[_Compilation]) -> list[_Compilation]:
    """Wait until something has come for one of them, or one has outrun its deadline.

    The time counts against the deadlines of all.

    Returns:
        Those to look at with `Compilation.is_ready`.
    """
    poll = select.poll()
    owners: dict[int, _Compilation] = {}
    for compilation in compilations:
        for descriptor, events in compilation.interest.items():
            poll.register(descriptor, events)
            owners[descriptor] = compilation
    longest_s = min((each.remaining_s for each in compilations), default=0.0)
    start = monotonic()
    happened = poll.poll(1000 * min(max(0.0, longest_s), _LONGEST_POLL_S))
    elapsed_s = monotonic() - start
    for compilation in compilations:
        compilation.charge(elapsed_s)
    touched = {id(owners[descriptor]) for descriptor, _ in happened}
    return [each for each in compilations if id(each) in touched or each.remaining_s <= 0]


def run_to_end(steps: Steps[_Result]) -> _Result:
    """Run one piece of work; it waits where it asks."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: _Result = end.value
            return result


def run_together(work: Sequence[Steps[_Result]]) -> list[_Result]:
    """Run several pieces of work at once, each with compilations of its own.

    Where some raise, the others run to their end, and the first error is raised then.

    Returns:
        Their results, in the order of the work.
    """
    running = _Running(work)
    for index in range(len(work)):
        running.resume(index)
    while running.waiting:
        for compilation in wait_for_any(list(running.waiting.values())):
            running.look_at(compilation)
    if running.errors:
        raise running.errors[min(running.errors)]
    return [running.results[index] for index in range(len(work))]


class _Running(Generic[_Result]):
    """Work in progress: what each piece waits for, or what came of it."""

    def __init__(self, work: Sequence[Steps[_Result]]) -> None:
        self._work = work
        self.waiting: dict[int, Compilation] = {}
        self.results: dict[int, _Result] = {}
        self.errors: dict[int, Exception] = {}

    def look_at(self, compilation: Compilation) -> None:
        index = next(each for each, other in self.waiting.items() if other is compilation)
        try:
            if compilation.is_ready():
                self.resume(index)
        except MlgoGymError as error:
            self.resume(index, error)

    def resume(self, index: int, error: MlgoGymError | None = None) -> None:
        steps = self._work[index]
        self.waiting.pop(index, None)
        try:
            self.waiting[index] = next(steps) if error is None else steps.throw(error)
        except StopIteration as end:
            self.results[index] = end.value
        except Exception as failure:  # noqa: BLE001 - raised once the others have ended
            self.errors[index] = failure

"""Waiting for several compilations at once, in one thread.

What has to wait for compilations is written as a generator that yields the one it waits for before
it asks for an observation. Alone it runs to its end as it is, since asking waits; several are
resumed as their compilations become ready.
"""

from __future__ import annotations

import select
from collections.abc import Generator, Sequence
from time import monotonic
from typing import Final, TypeVar

from mlgo_gym.base import MlgoGymError
from mlgo_gym.llvm._compilation import Compilation

_LONGEST_POLL_S: Final = 3600.0
_Compilation = TypeVar("_Compilation", bound=Compilation)
_Result = TypeVar("_Result")

Steps = Generator[Compilation, None, _Result]
"""Work that yields the compilation that it is about to ask for an observation."""


def wait_for_any(compilations: Sequence[_Compilation]) -> list[_Compilation]:
    """Wait until something has come; return the compilations to look at."""
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
    """Run several pieces of work at once, to the end of all; the results in order, or an error."""
    waiting: dict[int, Compilation] = {}
    results: dict[int, _Result] = {}
    errors: dict[int, Exception] = {}

    def resume(index: int, error: MlgoGymError | None = None) -> None:
        waiting.pop(index, None)
        try:
            waiting[index] = next(work[index]) if error is None else work[index].throw(error)
        except StopIteration as end:
            results[index] = end.value
        except Exception as failure:  # noqa: BLE001 - raised once the others have ended
            errors[index] = failure

    for index in range(len(work)):
        resume(index)
    while waiting:
        touched = {id(each) for each in wait_for_any(list(waiting.values()))}
        for index, compilation in [each for each in waiting.items() if id(each[1]) in touched]:
            try:
                if compilation.is_ready():
                    resume(index)
            except MlgoGymError as error:
                resume(index, error)
    if errors:
        raise errors[min(errors)]
    return [results[index] for index in range(len(work))]

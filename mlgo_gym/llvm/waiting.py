"""Waiting for several compilations at once, in one thread."""

from __future__ import annotations

import select
from collections.abc import Sequence
from time import monotonic
from typing import Final, TypeVar

from mlgo_gym.llvm.compilation import Compilation

__all__ = ["wait_for_any"]

_LONGEST_POLL_S: Final = 3600.0
_Compilation = TypeVar("_Compilation", bound=Compilation)


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

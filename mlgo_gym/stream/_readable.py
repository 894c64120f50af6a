"""Waiting for one descriptor, whatever its number: ``select.select`` takes none above 1,023.

Workers load this, and numpy with none of it.
"""

from __future__ import annotations

import select
from typing import Final

_LONGEST_S: Final = 1_000_000.0


def is_readable(descriptor: int, timeout_s: float) -> bool:
    """Whether there is something to read, or the end, within so many seconds."""
    return _is_ready(descriptor, select.POLLIN, timeout_s)


def is_writable(descriptor: int, timeout_s: float) -> bool:
    """Whether there is room to write, or nobody who reads, within so many seconds."""
    return _is_ready(descriptor, select.POLLOUT, timeout_s)


def _is_ready(descriptor: int, event: int, timeout_s: float) -> bool:
    poll = select.poll()
    poll.register(descriptor, event)
    return bool(poll.poll(1000 * min(max(0.0, timeout_s), _LONGEST_S)))

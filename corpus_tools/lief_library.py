"""LIEF, whose loading no signal may interrupt: it ends the process over an exception."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from threading import current_thread, main_thread


@contextmanager
def _signals_wait() -> Iterator[None]:
    """Handle signals that come in the block behind it."""
    came: list[int] = []
    ends = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    handlers = {each: handler for each in ends if callable(handler := signal.getsignal(each))}
    if current_thread() is not main_thread():
        handlers.clear()
    for each in handlers:
        signal.signal(each, lambda number, _: came.append(number))
    try:
        yield
    finally:
        for each, handler in handlers.items():
            signal.signal(each, handler)
        for number in came[:1]:
            signal.raise_signal(number)


with _signals_wait():
    import lief

__all__ = ("lief",)

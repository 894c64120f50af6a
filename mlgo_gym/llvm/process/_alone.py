"""One thread at a time: what another does meanwhile is an error at once, not a broken worker."""

from __future__ import annotations

import threading

from mlgo_gym.errors import UsageError


class Alone:
    """Lets one thread in, as often as it likes; others are told."""

    def __init__(self) -> None:
        self._lock = threading.RLock()

    def __enter__(self) -> None:
        if not self._lock.acquire(blocking=False):
            raise UsageError(
                "compiler: expected one thread at a time, found another that is using it; give "
                "each thread a compiler of its own"
            )

    def __exit__(self, *_: object) -> None:
        self._lock.release()

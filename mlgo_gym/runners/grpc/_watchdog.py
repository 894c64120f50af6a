"""Deadlines of waits that gRPC gives none: one thread for all waits of a stream."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable


class Watchdog:
    """Cancels a call whose wait outruns its deadline; one thread, not a timer for every wait."""

    def __init__(self, cancel: Callable[[], object]) -> None:
        self.has_fired = False
        self._cancel = cancel
        self._due_s = math.inf
        self._wake = threading.Event()
        self._is_asleep = True
        self._sleeps_until_s = math.inf
        self._is_closed = False
        self._thread = threading.Thread(target=self._run, name="grpc-deadline", daemon=True)
        self._thread.start()

    def arm(self, deadline_s: float) -> None:
        self._due_s = time.monotonic() + deadline_s
        if self._is_asleep or self._due_s < self._sleeps_until_s:
            self._wake.set()

    def disarm(self) -> None:
        self._due_s = math.inf

    def close(self) -> None:
        self._is_closed = True
        self._wake.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._is_closed:
            self._is_asleep = True  # before looking: whoever arms after the look wakes this thread
            now_s = time.monotonic()  # first: what is disarmed in time is never too late
            due_s = self._due_s
            left_s = due_s - now_s
            if left_s <= 0:
                self.has_fired = True
                self._cancel()
                return
            self._sleeps_until_s = due_s
            if left_s < math.inf:
                self._is_asleep = False  # a later deadline needs no waking
            self._wake.wait(None if left_s == math.inf else min(left_s, threading.TIMEOUT_MAX))
            self._wake.clear()

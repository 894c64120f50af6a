"""The process that a program runs in under a JIT.

    python -I -m mlgo_gym.lab.tiers._host DESCRIPTOR JOB ARGUMENT...

``JOB`` is a file of JSON; what was found goes to the descriptor as JSON. It runs in the sandbox
that programs run in, and ends as the program does.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
import time
from pathlib import Path
from typing import Any, Final

import numpy as np

from mlgo_gym.lab.tiers import _assembly as stubs
from mlgo_gym.lab.tiers._jit import Jit, begin, prepared
from mlgo_gym.lab.tiers._recording import (
    ENTERED,
    MOST_EVENTS,
    PROFILED,
    RESTED,
    RESTS,
    SPECIAL,
    VERSIONS,
    Event,
)

_NEVER: Final = 1 << 62
_STACK_BYTES: Final = 1 << 26
_SHADOW_BYTES: Final = 1 << 26


def main() -> None:
    """Do the job, and end as the program does."""
    log, job_path, *arguments = sys.argv[1:]
    libc = ctypes.CDLL(None, use_errno=True)
    begin()
    with Path(job_path).open("rb") as file:
        how = json.loads(file.readline())
        if "modules" in how:
            _write(int(log), prepared(how["modules"]))
            return
        jit = Jit(json.loads(file.readline()), libc, **how)  # all runs are alike up to here
        job = json.loads(file.readline())
    if not jit.is_counting:
        jit.warm_up()
    _Run(jit, job, libc, int(log)).start([job_path, *arguments])


def _write(descriptor: int, found: dict[str, Any]) -> None:
    with open(descriptor, "wb", closefd=False) as file:
        file.write(json.dumps(found).encode())


class _Run:
    """One run of the program, in a thread of its own, under a schedule of compilations."""

    def __init__(self, jit: Jit, job: dict[str, Any], libc: Any, log: int) -> None:
        self._libc = libc
        self._log = log
        self._jit = jit
        self._count = len(jit.functions)
        self._tier = job["tier"]
        self._rounds, self._status = job["rounds"], job["exit_status"]
        self._events: list[tuple[int, int, int, int, int]] = []
        self._at_exit: list[int] = []
        self._costs: list[tuple[int, int, float]] = []
        self._wrong: str | None = None
        self._powers = [[0] * (stubs.GUARD + len(VERSIONS) - SPECIAL) for _ in range(self._count)]
        jit.special = {int(f): (place, values) for f, place, values in job.get("special", ())}
        for function, block in job.get("kept", ()):
            jit.kept.setdefault(function, []).append(block)
        for given in job.get("given", ()):
            jit.take(given)
        if job.get("keeps"):
            jit.keeps = {}
        self._version = [0] * self._count
        self._plan = {tuple(key): tier for key, tier in job.get("plan", ())}
        self._behind = job.get("behind", ())
        self._next = 0
        self._marks: list[list[int]] = job.get("marks", [])
        self._spent: list[tuple[int, int, int]] = []
        values = (ctypes.c_int64 * (stubs.ROW // 8 * self._count)).from_address(
            jit.base + stubs.ROWS
        )
        self._rows = np.ctypeslib.as_array(values).reshape(self._count, stubs.ROW // 8)

    def start(self, arguments: list[str]) -> None:
        """Run ``main``, and answer its thread; ends the process as the program does."""
        for number in range(self._count):
            for place in (stubs.COUNTDOWN, stubs.BACK):
                self._put(stubs.ROWS + stubs.ROW * number + place, 1)
            self._put(
                stubs.ROWS + stubs.ROW * number + stubs.FAILED,
                1 if self._jit.has_events else _NEVER,
            )
            self._put(
                stubs.ROWS + stubs.ROW * number + stubs.SLOW,
                self._jit.stub(number) + stubs.STUB // 2,
            )
        if self._jit.is_counting:
            self._set("SHADOW", self._jit.memory(_SHADOW_BYTES))
            self._set("OWNER", self._jit.memory(8))
            self._set("ACTIVE", self._get("OWNER"))
            self._size = 8 * self._count
            self._memory = self._jit.memory(self._size * (len(self._marks) + 1))
            self._set("TABLE", self._memory)
            self._set("BOUNDARY", self._marks[0][0] if self._marks else _NEVER)
        words = [each.encode() for each in arguments]
        argv = (ctypes.c_char_p * (len(words) + 1))(*words, None)
        self._set("ARGC", len(words))
        self._set("ROUNDS", self._rounds)
        self._set("ARGV", ctypes.addressof(argv))
        for name, function in (("POST", self._libc.sem_post), ("WAIT", self._libc.sem_wait)):
            self._set(name, ctypes.cast(function, ctypes.c_void_p).value or 0)
        asked, answered = (
            ctypes.c_void_p(self._jit.base + each) for each in (stubs.ASKED, stubs.ANSWERED)
        )
        for each in (asked, answered):
            self._libc.sem_init(each, 0, 0)
        self._clock = time.pthread_getcpuclockid(self._thread())
        while True:
            while self._libc.sem_wait(asked):
                continue
            self._answer(self._get("KIND"), self._get("FUNCTION"))
            self._libc.sem_post(answered)

    def _thread(self) -> int:
        attributes = ctypes.create_string_buffer(256)
        thread = ctypes.c_ulong()
        self._libc.pthread_attr_init(attributes)
        stack = ctypes.c_void_p(self._jit.memory(_STACK_BYTES))
        self._libc.pthread_attr_setstack(attributes, stack, ctypes.c_size_t(_STACK_BYTES))
        start = ctypes.c_void_p(self._jit.address("tiers.start"))
        if self._libc.pthread_create(ctypes.byref(thread), attributes, start, None):
            raise MemoryError("expected a thread for the program, found that there is none")
        return thread.value

    def _answer(self, kind: int, function: int) -> None:
        if kind == stubs.ENDED:
            self._end()
        elif kind == stubs.AT_EXIT:
            self._at_exit.append(function)
        elif kind == stubs.AT_BOUNDARY:
            self._on_boundary(function)
        else:
            guess = self._version[function] - SPECIAL if kind == stubs.GUARD else 0
            self._on_event(function, kind + guess)

    def _put(self, place: int, value: int) -> None:
        ctypes.c_int64.from_address(self._jit.base + place).value = value

    def _set(self, name: str, value: int) -> None:
        self._put(stubs.PLACES[name], value)

    def _get(self, name: str) -> int:
        return int(ctypes.c_int64.from_address(self._jit.base + stubs.PLACES[name]).value)

    def _on_event(self, function: int, kind: int) -> None:
        """A count of a function has reached a power of two."""
        power = self._powers[function][kind]
        self._powers[function][kind] += 1
        place = {stubs.CALL: stubs.COUNTDOWN, stubs.BACK_EDGE: stubs.BACK}.get(kind, stubs.FAILED)
        self._put(stubs.ROWS + stubs.ROW * function + place, 1 << power)
        if len(self._events) >= MOST_EVENTS:
            raise OverflowError(f"expected at most {MOST_EVENTS} events, found more")
        if self._jit.is_counting:
            # A call is counted behind its event.
            call = self._get("CALLS") + (not kind)
            self._events.append(Event(function, kind, power, call, self._loop(function, kind)))
            self._spend(len(self._events) - 1)
        if self._jit.watch and (kind, power) == (stubs.CALL, PROFILED):
            self._jit.watch.profiled(function)
        self._decide(function, kind, power)

    def _decide(self, function: int, kind: int, power: int) -> None:
        """Compile what the plan says; a function's first code in any case."""
        answer = self._plan.get((function, kind, power))
        if answer is None and not kind and not power:
            answer = self._tier
        if answer == ENTERED:
            self._switch(function, RESTED)
            rest = self._timed(function, RESTS + self._loop(function, kind))
            self._put(stubs.ROWS + stubs.ROW * function + stubs.ENTRY, rest)
        elif answer is not None:
            self._switch(function, answer)

    def _loop(self, function: int, kind: int) -> int:
        """The number of the block that a jump back goes to, -1 where nothing begins there."""
        place = self._jit.base + stubs.ROWS + stubs.ROW * function + stubs.LOOP
        return int(ctypes.c_int64.from_address(place).value) if kind == stubs.BACK_EDGE else -1

    def _spend(self, interval: int) -> None:
        """Note what each function has executed since the event before."""
        owed = self._get("TOTAL") - self._get("LAST")
        for name in ("ACTIVE", "OWNER"):
            ctypes.c_int64.from_address(self._get(name)).value += owed
        self._set("LAST", self._get("TOTAL"))
        spent = self._rows[:, stubs.SPENT // 8]
        self._spent += ((interval, int(i), int(spent[i])) for i in np.flatnonzero(spent))
        spent[:] = 0

    def _on_boundary(self, function: int) -> None:
        """A call begins at which an interval does."""
        call = self._get("CALLS")
        while self._next < len(self._marks) and self._marks[self._next][0] <= call:
            _, own, kind, power = self._marks[self._next]
            if not kind and own != function:
                self._wrong = f"call {call} is of another function than at O0"
                self._end()
            self._decide(own, kind, power)
            self._next += 1
        self._set("TABLE", self._memory + self._size * self._next)
        is_last = self._next == len(self._marks)
        self._set("BOUNDARY", _NEVER if is_last else self._marks[self._next][0] - call)

    def _switch(self, function: int, version: int) -> None:
        self._put(stubs.ROWS + stubs.ROW * function + stubs.CELL, self._timed(function, version))
        self._version[function] = version
        if version >= SPECIAL and self._jit.has_events:
            self._put(stubs.ROWS + stubs.ROW * function + stubs.FAILED, 1)

    def _timed(self, function: int, version: int) -> int:
        """The address of a function's code; what it took is a cost."""
        start, besides = time.thread_time(), self._jit.besides_s
        code = self._jit.code(function, version)
        took = time.thread_time() - start - self._jit.besides_s + besides
        self._costs.append((function, version, took))
        return code

    def _end(self) -> None:
        """Do what ``exit`` does; return where a handler is to be called first."""
        if self._at_exit and not self._wrong:
            self._set("HANDLER", self._at_exit.pop())
            return
        self._libc.fflush(None)
        seconds = time.clock_gettime(self._clock)
        for function, version in self._behind:
            self._timed(function, version)
        found: dict[str, Any] = {
            "seconds": seconds,
            "costs": self._costs,
            "events": self._events,
            "calls": self._get("CALLS"),
            "wrong": self._wrong,
        }
        if self._jit.is_counting:
            self._spend(len(self._events))
            found |= self._counts()
        if self._jit.keeps is not None:
            found["kept_objects"] = self._jit.kept_objects()
        if self._jit.watch:
            found |= self._jit.watch.found()
        _write(self._log, found)
        os._exit(self._status if self._wrong else self._get("STATUS") & 0xFF)

    def _counts(self) -> dict[str, Any]:
        rows: list[list[int]] = []
        for interval in range(len(self._marks) + 1):
            place = self._memory + self._size * interval
            values = (ctypes.c_int64 * self._count).from_address(place)
            counts = np.ctypeslib.as_array(values)
            rows += ([interval, int(i), int(counts[i])] for i in np.flatnonzero(counts))
        return {"total": self._get("TOTAL"), "counts": rows, "spent": self._spent}


if __name__ == "__main__":
    main()

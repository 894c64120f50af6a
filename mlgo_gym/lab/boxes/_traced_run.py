"""One run of a program under ``ptrace``, with counters of its functions' calls."""

from __future__ import annotations

import ctypes
import os
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import MappingProxyType
from typing import Final

from corpus_tools.workloads import Workload
from mlgo_gym.base import EnvironmentSetupError, WorkloadError
from mlgo_gym.lab.boxes._described import NOP_BYTES
from mlgo_gym.lab.boxes._tracing import (
    AREA,
    BYTES,
    EXECUTED,
    FIRST_PAGE,
    GADGET,
    Stop,
    Tracee,
    counter,
    jump,
    stub,
    stub_at,
    stub_code,
)
from mlgo_gym.lab.programs import (
    TUNABLES,
    ProgramRun,
    StartedProgram,
    Way,
    started_program,
    too_long,
    wrong,
)

_libc: Final = ctypes.CDLL(None)
_NEVER: Final = 1 << 62
_MMAP: Final = 9
_READ_WRITE_EXECUTE: Final = 7
_PRIVATE_FIXED: Final = 0x02 | 0x20 | 0x4000 | 0x100000
"""``MAP_PRIVATE``, ``MAP_ANONYMOUS``, ``MAP_NORESERVE``, ``MAP_FIXED_NOREPLACE``."""
_ENVIRONMENT: Final = MappingProxyType({"GLIBC_TUNABLES": f"{TUNABLES}:glibc.pthread.rseq=0"})
"""The system notes in memory which processor a thread is on, which is another each time."""
_SYSCALL: Final = b"\x0f\x05"
_BREAK: Final = b"\xcc"
_NO_PTRACE: Final = (
    "boxes: expected to trace a process that this one has started, found that the system refuses: "
    "{}; in a container, give it the capability SYS_PTRACE"
)


class Run:
    """A program that is run, by the thread that made it.

    Args:
        process: the program.
        started: its process and files.
        workload: how it is run.
    """

    def __init__(self, process: Tracee, started: StartedProgram, workload: Workload) -> None:
        self.process: Final = process
        self._started = started
        self._workload = workload
        self._left_s: float = started.most_s
        self._is_late = False

    def go_on(self, number: int = 0) -> Stop:
        """Go on to the next stop that is not a signal of the program's own."""
        with self.limited():
            stop = self.process.run(number)
            while stop.signal and stop.signal != signal.SIGTRAP:
                stop = self.process.run(stop.signal)
        if stop.is_start:
            self.process.let_go()
            raise wrong(
                self._workload, "expected a program of one thread, found that it starts one"
            )
        if self._is_late:
            raise too_long(self._workload, self._started.most_s)
        return stop

    @contextmanager
    def limited(self) -> Iterator[None]:
        """While the program runs: it is ended where it has run too long, in all."""
        timer = threading.Timer(max(0.0, self._left_s), self._end)
        start = time.monotonic()
        timer.start()
        try:
            yield
        finally:
            timer.cancel()
            self._left_s -= time.monotonic() - start

    def _end(self) -> None:
        self._is_late = True
        with suppress(ProcessLookupError):
            os.kill(self.process.pid, signal.SIGKILL)

    def break_at(self, address: int) -> None:
        """Stop where an address is executed."""
        self.process.write(address, _BREAK)

    def until(self, address: int) -> Stop:
        """Go on to where an address is executed, or to the end."""
        kept = self.process.read(address, 1)
        self.process.write(address, _BREAK)
        stop = self.go_on()
        if stop.status is None:
            self.process.write(address, kept)
            self.process.registers = self.process.registers.copy(rip=address)
        return stop

    def result(self, status: int) -> ProgramRun:
        """The run of the program, with its exit status."""
        return self._started.run(status, 0.0)

    def map_area(self) -> None:
        """Map the area in the program, which is at its first instruction."""
        process = self.process
        process.step()  # out of the system call that has started it
        start = process.rip
        kept = process.read(start, 2)
        process.write(start, _SYSCALL)
        how = (_READ_WRITE_EXECUTE, _PRIVATE_FIXED, (1 << 64) - 1, 0)
        found = process.call(start, _MMAP, AREA, BYTES, *how)
        process.write(start, kept)
        if found != AREA:
            raise wrong(self._workload, f"expected {BYTES} bytes free at {AREA:#x}, found none")
        process.write(GADGET, FIRST_PAGE)


class Counted:
    """Functions of a run whose calls are counted, each of which stops at one of its calls.

    Args:
        process: the program.
        entries: the address of each function; they begin with `NOP_BYTES` bytes that do nothing.
    """

    def __init__(self, process: Tracee, entries: Sequence[int]) -> None:
        self._process = process
        self._entries = entries
        self._kept = [process.read(each, NOP_BYTES) for each in entries]
        self._set = [_NEVER] * len(entries)
        self._before = [0] * len(entries)
        codes = [stub_code(i, entry + NOP_BYTES) for i, entry in enumerate(entries)]
        process.write(stub(0), b"".join(codes))
        for number, entry in enumerate(entries):
            process.write(counter(number), _NEVER.to_bytes(8, "little"))
            process.write(entry, jump(entry, stub(number)))

    def calls(self, number: int) -> int:
        """The calls of a function so far."""
        left = self._process.word(counter(number))
        return self._before[number] + self._set[number] - left

    def stop_at(self, number: int, call: int) -> None:
        """Stop at a later call of a function."""
        self._before[number] = self.calls(number)
        self._set[number] = min(call - self._before[number], _NEVER)
        self._process.write(counter(number), self._set[number].to_bytes(8, "little"))

    def stop_never(self, number: int) -> None:
        """Count a function's calls, and stop at none."""
        self.stop_at(number, self.calls(number) + _NEVER)

    def stopped_at(self) -> int | None:
        """The function at whose call the program has stopped, and which it goes on with."""
        process = self._process
        number = stub_at(process.rip)
        if number is not None:
            process.registers = process.registers.copy(rip=self._entries[number] + NOP_BYTES)
        return number

    def boxed(self, number: int) -> Tracee:
        """A copy of the program at a function's first instruction, without what counts calls."""
        made = self._process.fork(GADGET)
        for entry, kept in zip(self._entries, self._kept, strict=True):
            made.write(entry, kept)
        made.registers = made.registers.copy(rip=self._entries[number])
        return made


def _pin(pid: int) -> None:
    """Put a process where this thread is: each stop is then a third as long."""
    processor = {_libc.sched_getcpu()}
    with suppress(OSError):
        os.sched_setaffinity(0, processor)
        os.sched_setaffinity(pid, processor)


@contextmanager
def traced(workload: Workload, path: Path) -> Iterator[Run]:
    """A run of a program that has come to its first instruction; it ends with the context."""
    waits, opens = os.pipe()
    with ExitStack() as stack:
        stack.callback(os.close, waits)
        gate = stack.enter_context(os.fdopen(opens, "wb"))
        way = Way(environment=_ENVIRONMENT, more_bytes=BYTES, copies=True)
        started = stack.enter_context(started_program(workload, path, way, gate=waits))
        launcher = started.process
        try:
            Tracee.attach(launcher.pid)
        except OSError as error:
            launcher.kill()
            launcher.wait()
            raise EnvironmentSetupError(_NO_PTRACE.format(error.strerror)) from error
        _pin(launcher.pid)
        process = Tracee(launcher.pid)
        stack.callback(setattr, launcher, "returncode", 0)  # it is waited for here
        stack.callback(process.kill)
        run = Run(process, started, workload)

        gate.close()
        while (stop := process.wait_for(launcher.pid)).event != EXECUTED or not started.has_begun():
            if stop.status is not None:
                raise WorkloadError(f"{path}: expected a program that starts, found {stop}")
            process.resume(stop.signal)
        process.reopen()
        run.map_area()
        yield run

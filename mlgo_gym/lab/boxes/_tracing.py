"""Linux's ``ptrace`` on x86-64: a process is stopped, looked into, forked, and goes on.

All is done by the one thread that has attached to a process; what it forks is attached, too, and
all of them end with this process (``PTRACE_O_EXITKILL``).

A traced program is given memory beside its own: stubs, the timer and a candidate. It is below
2 GiB, where the code of a program that is linked statically reaches it.

The timer calls a function again and again, and times each call alone. It has no stack of its own.
Before each call the pages that the call changes, and all registers, are as they were when the box
was made.
"""

from __future__ import annotations

import ctypes
import os
import signal
import struct
from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

_CONT, _SINGLESTEP, _SYSCALL = 7, 9, 24
_PEEKUSER, _GETREGS, _SETREGS, _GETFPREGS = 3, 12, 13, 14
_SEIZE, _DETACH, _GETEVENTMSG = 0x4206, 17, 0x4201
_OPTIONS: Final = 1 | 2 | 4 | 8 | 16 | 1 << 20
"""``PTRACE_O_TRACESYSGOOD``, ``TRACEFORK``, ``TRACEVFORK``, ``TRACECLONE``, ``TRACEEXEC``,
``EXITKILL``."""
_FORKED, _VFORKED, _CLONED, EXECUTED = 1, 2, 3, 4
_AT_SYSCALL: Final = signal.SIGTRAP | 0x80
_WALL: Final = 0x40000000
_CLONE, _CLONE_PARENT_SIGCHLD = 56, 0x8011
_RIP_OFFSET: Final = 16 * 8
_FX_BYTES: Final = 512
_NAMES: Final = (
    *("r15", "r14", "r13", "r12", "rbp", "rbx", "r11", "r10", "r9", "r8", "rax", "rcx", "rdx"),
    *("rsi", "rdi", "orig_rax", "rip", "cs", "eflags", "rsp", "ss", "fs_base", "gs_base"),
    *("ds", "es", "fs", "gs"),
)
_NO_SYSCALL: Final = (1 << 64) - 1
_OWN: Final = np.uint64(1 << 63 | 1 << 56)
"""A page is there, and mapped by one process alone."""

PAGE: Final = 4096

AREA: Final = 0x60000000
BYTES: Final = 1 << 26

GADGET: Final = AREA
"""A ``syscall`` instruction."""
DONE: Final = AREA + 16
"""An ``int3``, where a call that is tried returns to."""
LOOP_TIMES: Final = 100
LOOPS: Final = (AREA + 32, AREA + 48)
"""Functions that go round in a loop, the second twice as often as the first."""

_STUBS: Final = AREA + 0x1000
_COUNTERS: Final = AREA + 0x200000
TIMER: Final = AREA + 0x400000
DATA: Final = AREA + 0x500000
CANDIDATE: Final = AREA + 0x3000000
STUB_BYTES: Final = 16
MOST_FUNCTIONS: Final = (_COUNTERS - _STUBS) // STUB_BYTES
"""The most functions of a program whose calls are counted."""

_COUNT, _RESULTS, _TARGET, START = 0, 8, 16, 24
_REGISTERS: Final = 64
_FLOATS: Final = 512
_TABLE: Final = 2048
_SAVED: Final = (
    *("rax", "rbx", "rcx", "rdx", "rsi", "rdi", "rbp", "rsp"),
    *("r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15"),
)
_ENTRY: Final = struct.Struct("<QQQ")
MOST_COPIES: Final = 4096
"""The most pages that are put back before a call."""
RESULTS: Final = _TABLE + _ENTRY.size * (MOST_COPIES + 1)
"""Where results begin, from the start of the timer's data."""

NAME: Final = "boxes.timer"


class Registers(ctypes.Structure):
    """``struct user_regs_struct`` of ``<sys/user.h>``."""

    _fields_ = [(name, ctypes.c_ulonglong) for name in _NAMES]

    def copy(self, **changed: int) -> Registers:
        """Copy the registers, but for some."""
        made = Registers.from_buffer_copy(self)
        for name, value in changed.items():
            setattr(made, name, value)
        return made


@dataclass(frozen=True, slots=True)
class Stop:
    """Why a process has stopped.

    Attributes:
        signal: the signal, 0 for others.
        event: what ``ptrace`` calls it, as `EXECUTED`; 0 for others.
        is_syscall: it begins a system call.
        status: its exit status, where it has ended; negative is the signal.
    """

    signal: int = 0
    event: int = 0
    is_syscall: bool = False
    status: int | None = None

    @property
    def is_start(self) -> bool:
        """Whether it has made a process or a thread."""
        return self.event in {_FORKED, _VFORKED, _CLONED}


_libc: Final = ctypes.CDLL(None, use_errno=True)
_libc.ptrace.restype = ctypes.c_long
_libc.ptrace.argtypes = [ctypes.c_long] * 4


def _ptrace(request: int, pid: int, place: int = 0, data: int = 0) -> int:
    ctypes.set_errno(0)
    found = _libc.ptrace(request, pid, place, data)
    if found == -1 and (number := ctypes.get_errno()):
        raise OSError(number, os.strerror(number))
    return int(found)


@dataclass(frozen=True, slots=True)
class Region:
    """Addresses that a process has mapped, as ``/proc/PID/maps`` has them."""

    start: int
    end: int
    rights: str
    name: str


class Tracee:
    """A process that is traced, and is stopped unless it is said otherwise.

    Args:
        pid: its id.
    """

    def __init__(self, pid: int) -> None:
        self.pid: Final = pid
        self._memory = os.open(f"/proc/{pid}/mem", os.O_RDWR)
        self._has_ended = False

    @classmethod
    def attach(cls, pid: int) -> None:
        """Trace a process, which goes on: the next `wait` is for what it does."""
        _ptrace(_SEIZE, pid, 0, _OPTIONS)

    @staticmethod
    def wait_for(pid: int) -> Stop:
        """Wait until a process stops or ends."""
        _, status = os.waitpid(pid, _WALL)
        if not os.WIFSTOPPED(status):
            return Stop(status=os.waitstatus_to_exitcode(status))
        number = os.WSTOPSIG(status)
        if number == _AT_SYSCALL:
            return Stop(is_syscall=True)
        event = status >> 16
        return Stop(0 if event else number, event)

    @property
    def registers(self) -> Registers:
        """The registers."""
        found = Registers()
        _ptrace(_GETREGS, self.pid, 0, ctypes.addressof(found))
        return found

    @registers.setter
    def registers(self, values: Registers) -> None:
        _ptrace(_SETREGS, self.pid, 0, ctypes.addressof(values))

    @property
    def floats(self) -> bytes:
        """The floating-point registers, as ``fxsave`` writes them."""
        found = ctypes.create_string_buffer(_FX_BYTES)
        _ptrace(_GETFPREGS, self.pid, 0, ctypes.addressof(found))
        return found.raw

    @property
    def rip(self) -> int:
        """The address of the next instruction."""
        return _ptrace(_PEEKUSER, self.pid, _RIP_OFFSET) & _NO_SYSCALL

    def read(self, address: int, size: int) -> bytes:
        """Read memory; less where it ends before."""
        try:
            return os.pread(self._memory, size, address)
        except OSError:
            return b""

    def write(self, address: int, data: bytes) -> None:
        """Write memory, whatever its protection is."""
        os.pwrite(self._memory, data, address)

    def word(self, address: int) -> int:
        """The eight bytes there, as a number."""
        return int.from_bytes(self.read(address, 8), "little")

    def let_go(self) -> None:
        """Trace no more the thread or the process that it has just started."""
        started = ctypes.c_ulong()
        _ptrace(_GETEVENTMSG, self.pid, 0, ctypes.addressof(started))
        self.wait_for(started.value)
        _ptrace(_DETACH, started.value)

    def reopen(self) -> None:
        """Look at the memory of the program that it has become."""
        self.close()
        self._memory = os.open(f"/proc/{self.pid}/mem", os.O_RDWR)

    def resume(self, number: int = 0) -> None:
        """Go on, with a signal if there is one; the next `wait_for` is for its next stop."""
        _ptrace(_CONT, self.pid, 0, number)

    def run(self, number: int = 0, *, syscalls: bool = False) -> Stop:
        """Go on, with a signal if there is one, to the next stop.

        Args:
            number: the signal that it is given.
            syscalls: it stops before a system call, too.
        """
        _ptrace(_SYSCALL if syscalls else _CONT, self.pid, 0, number)
        return self._waited()

    def step(self) -> Stop:
        """Execute one instruction, or one repetition of what a ``rep`` repeats."""
        _ptrace(_SINGLESTEP, self.pid)
        return self._waited()

    def count_steps(self, until: int, *, skipped: Collection[int], most: int) -> int | None:
        """Execute instructions up to an address, and count them; ``None`` if there are more.

        Repetitions of what a ``rep`` repeats are one.

        Args:
            until: the address.
            skipped: addresses of instructions that are not counted.
            most: how many are counted at most.
        """
        pid, ptrace, wait = self.pid, _libc.ptrace, os.waitpid
        count, last, at = 0, 0, self.rip
        while at != until:
            count += at != last and at not in skipped
            if count > most:
                return None
            ptrace(_SINGLESTEP, pid, 0, 0)
            wait(pid, _WALL)
            last, at = at, ptrace(_PEEKUSER, pid, _RIP_OFFSET, 0)
        return count

    def _waited(self) -> Stop:
        stop = self.wait_for(self.pid)
        self._has_ended = stop.status is not None
        return stop

    def call(self, gadget: int, number: int, *arguments: int) -> int:
        """Have it call the system, and return what it returns.

        Args:
            gadget: the address of a ``syscall`` instruction.
            number: of the call.
            arguments: up to six.
        """
        before = self.registers
        self._prepare_call(before, gadget, number, *arguments)
        self.step()
        result = self.registers.rax
        self.registers = before
        return int(result)

    def _prepare_call(self, before: Registers, gadget: int, number: int, *arguments: int) -> None:
        names = ("rdi", "rsi", "rdx", "r10", "r8", "r9")
        padded = (*arguments, *(0,) * len(names))
        values = dict(zip(names, padded, strict=False))
        self.registers = before.copy(rip=gadget, rax=number, orig_rax=_NO_SYSCALL, **values)

    def fork(self, gadget: int) -> Tracee:
        """A copy of the process, a child of its parent, which is stopped in the same place."""
        before = self.registers
        self._prepare_call(before, gadget, _CLONE, _CLONE_PARENT_SIGCHLD)
        stop = self.step()
        if stop.event != _FORKED:
            raise OSError(f"expected the process to fork, found {stop}")
        child = ctypes.c_ulong()
        _ptrace(_GETEVENTMSG, self.pid, 0, ctypes.addressof(child))
        self.wait_for(child.value)
        self.step()
        made = Tracee(child.value)
        made.registers = self.registers = before
        return made

    def regions(self) -> list[Region]:
        """The mapped regions, by address."""
        found = []
        lines = Path(f"/proc/{self.pid}/maps").read_text(encoding="utf-8", errors="replace")
        for line in lines.splitlines():
            place, rights, _, _, _, *name = line.split(maxsplit=5)
            start, end = (int(each, 16) for each in place.split("-"))
            found.append(Region(start, end, rights, name[0].strip() if name else ""))
        return found

    def own_pages(self, regions: list[Region]) -> Iterator[int]:
        """The addresses of pages that no other process shares, of regions that can be written.

        Those of a fork are the ones that it has written, whatever their bytes are
        (``Documentation/admin-guide/mm/pagemap.rst``, bit 56).
        """
        descriptor = os.open(f"/proc/{self.pid}/pagemap", os.O_RDONLY)
        try:
            for region in regions:
                if "w" not in region.rights:
                    continue
                count = (region.end - region.start) // PAGE
                raw = os.pread(descriptor, 8 * count, region.start // PAGE * 8)
                entries = np.frombuffer(raw, np.uint64)
                for place in np.flatnonzero(entries & _OWN == _OWN).tolist():
                    yield region.start + place * PAGE
        finally:
            os.close(descriptor)

    def kill(self) -> None:
        """End it."""
        if not self._has_ended:
            with suppress(OSError):
                os.kill(self.pid, signal.SIGKILL)
            while not self._has_ended:
                try:
                    self._waited()
                except ChildProcessError:
                    break
        self.close()

    def close(self) -> None:
        """Close what this has opened of it."""
        if self._memory >= 0:
            os.close(self._memory)
            self._memory = -1


def _loop(times: int) -> bytes:
    """``mov $times, %ecx; 1: dec %ecx; jnz 1b; ret``."""
    return (b"\xb9" + struct.pack("<I", times) + b"\xff\xc9\x75\xfc\xc3").ljust(16, b"\xcc")


FIRST_PAGE: Final = (
    b"\x0f\x05".ljust(16, b"\xcc") + b"\xcc" * 16 + _loop(LOOP_TIMES) + _loop(2 * LOOP_TIMES)
)


def jump(start: int, target: int) -> bytes:
    """The instruction at an address that goes on at another."""
    return b"\xe9" + struct.pack("<i", target - start - 5)


def counter(number: int) -> int:
    """The address of a function's counter, which goes down at each of its calls."""
    return _COUNTERS + 8 * number


def stub(number: int) -> int:
    """The address of a function's stub."""
    return _STUBS + STUB_BYTES * number


def stub_at(address: int) -> int | None:
    """The number of the stub whose ``int3`` was executed, which ends just before an address."""
    number, rest = divmod(address - _STUBS, STUB_BYTES)
    return number - 1 if rest == 0 and 0 < number <= MOST_FUNCTIONS else None


def stub_code(number: int, goes_on: int) -> bytes:
    """A stub: it counts a call, and stops where the counter is at zero.

    Args:
        number: of the function.
        goes_on: the address of its code.
    """
    down = b"\x48\xff\x0c\x25" + struct.pack("<i", counter(number))  # decq
    leaps = b"\x74\x05"  # jz, over the jump
    back = jump(stub(number) + len(down) + len(leaps), goes_on)
    return down + leaps + back + b"\xcc"


def timer_text(data: int, triple: str) -> str:
    """The timer, as a module of LLVM's assembly.

    Args:
        data: the address of its data, below 2 GiB.
        triple: of the machine.
    """
    place = {name: data + _REGISTERS + 8 * i for i, name in enumerate(_SAVED)}
    loaded = [f"mov {place[each]}, %{each}" for each in _SAVED if each not in {"rax", "rdx"}]
    lines = [
        f".globl {NAME}",
        f".type {NAME}, @function",
        f"{NAME}:",
        f"mov ${data + _TABLE}, %ebx",
        "1: mov (%rbx), %rdi",
        "test %rdi, %rdi",
        "jz 2f",
        "mov 8(%rbx), %rsi",
        "mov 16(%rbx), %rcx",
        "cld",
        "rep movsb",
        f"add ${_ENTRY.size}, %rbx",
        "jmp 1b",
        f"2: fxrstor64 {data + _FLOATS}",
        *loaded,
        "lfence",
        "rdtsc",
        "shl $32, %rdx",
        "or %rdx, %rax",
        f"mov %rax, {data + START}",
        f"mov {place['rax']}, %rax",
        f"mov {place['rdx']}, %rdx",
        "lfence",
        f"call *{data + _TARGET}",
        "rdtscp",
        "lfence",
        "shl $32, %rdx",
        "or %rdx, %rax",
        f"sub {data + START}, %rax",
        f"mov {data + _RESULTS}, %rdi",
        "mov %rax, (%rdi)",
        f"addq $8, {data + _RESULTS}",
        f"decq {data + _COUNT}",
        f"jnz {NAME}",
        "int3",
    ]
    quoted = "\n".join(f'module asm "{each}"' for each in lines)
    return f'target triple = "{triple}"\n{quoted}\n'


def timer_data(
    data: int,
    registers: Registers,
    floats: bytes,
    *,
    target: int,
    repeats: int,
    copies: list[tuple[int, int, int]],
) -> bytes:
    """The timer's data for a number of calls.

    Args:
        data: its address.
        registers: as they are where the function begins.
        floats: the same, as ``fxsave`` writes them.
        target: the address of the function.
        repeats: the number of calls.
        copies: what is put back before each: to, from, and the number of bytes.
    """
    made = bytearray(RESULTS)
    struct.pack_into("<QQQ", made, 0, repeats, data + RESULTS, target)
    for number, name in enumerate(_SAVED):
        value = getattr(registers, name) + (8 if name == "rsp" else 0)  # the call pushes
        struct.pack_into("<Q", made, _REGISTERS + 8 * number, value)
    made[_FLOATS : _FLOATS + len(floats)] = floats
    for number, each in enumerate(copies):
        _ENTRY.pack_into(made, _TABLE + _ENTRY.size * number, *each)
    return bytes(made)

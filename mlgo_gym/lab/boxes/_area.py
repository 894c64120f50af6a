"""The memory that a traced program is given beside its own: stubs, the timer and a candidate.

It is below 2 GiB, where the code of a program that is linked statically reaches it.

The timer calls a function again and again, and times each call alone. It has no stack of its own.
Before each call the pages that the call changes, and all registers, are as they were when the box
was made.
"""

from __future__ import annotations

import struct
from typing import Final

from mlgo_gym.lab.boxes._tracing import Registers

AREA: Final = 0x60000000
BYTES: Final = 1 << 26

GADGET: Final = AREA
"""A ``syscall`` instruction."""
DONE: Final = AREA + 16
"""An ``int3``, where a call that is tried returns to."""
LOOP_TIMES: Final = 100
LOOPS: Final = (AREA + 32, AREA + 48)
"""Functions that go round in a loop, the second twice as often as the first."""


def _loop(times: int) -> bytes:
    """``mov $times, %ecx; 1: dec %ecx; jnz 1b; ret``."""
    return (b"\xb9" + struct.pack("<I", times) + b"\xff\xc9\x75\xfc\xc3").ljust(16, b"\xcc")


FIRST_PAGE: Final = (
    b"\x0f\x05".ljust(16, b"\xcc") + b"\xcc" * 16 + _loop(LOOP_TIMES) + _loop(2 * LOOP_TIMES)
)

_STUBS: Final = AREA + 0x1000
_COUNTERS: Final = AREA + 0x200000
TIMER: Final = AREA + 0x400000
DATA: Final = AREA + 0x500000
CANDIDATE: Final = AREA + 0x3000000
STUB_BYTES: Final = 16
MOST_FUNCTIONS: Final = (_COUNTERS - _STUBS) // STUB_BYTES
"""The most functions of a program whose calls are counted."""


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

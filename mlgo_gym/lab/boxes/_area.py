"""The memory that a traced program is given beside its own: stubs, the timer and a candidate.

It is below 2 GiB, where the code of a program that is linked statically reaches it.
"""

from __future__ import annotations

import struct
from typing import Final

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

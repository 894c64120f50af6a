"""Stubs that a program's calls go through, their data, and the way to the other thread.

A stub counts its function's calls down to the next power of two and jumps through the function's
cell, where its present code stands. Where instructions are counted, what has been executed since
the last call or return is added to the function that did it, in the table of the interval that its
activation began in; a return goes by way of a shadow stack.

The program has a thread of its own, which asks the other at each event and waits. So nothing but
the program allocates in its arena, and its stubs, stack and data stand at the same addresses in
every run: programs that hash addresses do the same each time.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

_NAMES: Final = (
    *("TOTAL", "LAST", "SAVED", "SAVED_A", "SAVED_C", "OWNER", "TABLE", "SHADOW", "CALLS"),
    *(
        "ACTIVE",
        "BOUNDARY",
        "POST",
        "WAIT",
        "FUNCTION",
        "KIND",
        "HANDLER",
        "ARGC",
        "ARGV",
        "STATUS",
        "ROUNDS",
    ),
)
PLACES: Final = {name: 8 * number for number, name in enumerate(_NAMES)}
"""Where the data that all stubs share stand, by name; in bytes from its start."""
ASKED, ANSWERED = 256, 320
"""Where the two semaphores stand."""
_SHIFT: Final = 6
ROWS, ROW = 512, 1 << _SHIFT
"""Where the functions' own data stand, and the bytes of each."""
COUNTDOWN, CELL, BACK, SLOW, SPENT, ENTRY, LOOP, FAILED = range(0, ROW, 8)
"""Offsets in a function's own data."""
STUB: Final = 128
"""The bytes of a function's stub: its entry, and from the half on what asks at jumps back."""
ON_FAILURE: Final = STUB * 3 // 4
"""Where in a function's stub is what asks when a guard has failed."""
CALL, BACK_EDGE, GUARD, AT_BOUNDARY, AT_EXIT, ENDED = range(6)
"""Kinds of questions that the program's thread asks."""
ENTRIES: Final = ("tiers.start", "tiers.exit", "tiers.atexit")
"""Names of the code behind the stubs, `STUB` bytes each."""

_SAVED: Final = ("rax", "rdi", "rsi", "rdx", "rcx", "r8", "r9", "r10")
_VECTORS: Final = 8
_ALL_SAVED: Final = ("rax", "rbx", "rcx", "rdx", "rsi", "rdi", "r8", "r9", "r10", "r11")


def stubs(count: int, main: int, base: int, *, counting: bool, events: bool) -> str:
    """Assembly of functions' stubs, `STUB` bytes each, and of what is common to them.

    Args:
        count: of the functions.
        main: the number of the one that the program starts at.
        base: the address of their data.
        counting: whether executed instructions and calls are counted.
        events: whether each function's count asks at powers of two.
    """
    return "\n".join(_stubs(count, main, base, counting, events)) + "\n"


def _stubs(count: int, main: int, base: int, counting: bool, events: bool) -> Iterator[str]:
    at = {name: base + place for name, place in PLACES.items()}
    yield "\t.text\n\t.p2align 7\ntiers.stubs:"
    for number in range(count):
        row = base + ROWS + ROW * number
        enter = "jmp\ttiers.enter" if counting else f"jmpq\t*{row + CELL}"
        if events:
            yield f"\tdecq\t{row + COUNTDOWN}\n\tje\t1f"
        yield f"\tmovl\t${number}, %r11d\n\t{enter}"
        if events:
            yield f"1:\tmovl\t${number}, %r11d\n\tjmp\ttiers.call"
        yield f"\t.p2align 6\n\t.org\t{STUB * number + STUB // 2}"
        yield f"\tpushq\t${number}\n\tjmp\ttiers.back"
        yield f"\t.p2align 5\n\t.org\t{STUB * number + ON_FAILURE}"
        yield f"\tpushq\t${number}\n\tjmp\ttiers.failed\n\t.p2align 7"
    yield f"\tsubq\t$8, %rsp\n7:\tmovq\t{at['ARGC']}, %rdi\n\tmovq\t{at['ARGV']}, %rsi"
    yield f"\tcallq\ttiers.stubs + {STUB * main}\n\tdecq\t{at['ROUNDS']}\n\tjne\t7b"
    yield "\tmovslq\t%eax, %rdi\n\tjmp\ttiers.ends"
    yield "\t.p2align 7"
    yield "\tsubq\t$8, %rsp\n\tjmp\ttiers.ends\n\t.p2align 7"
    yield f"\tsubq\t$8, %rsp\n\tmovl\t${AT_EXIT}, %esi\n\tcallq\ttiers.ask"
    yield "\txorl\t%eax, %eax\n\taddq\t$8, %rsp\n\tretq\n\t.p2align 7"
    yield f"tiers.ends:\n\tmovq\t%rdi, {at['STATUS']}"
    yield f"5:\tmovl\t${ENDED}, %esi\n\tcallq\ttiers.ask\n\tcallq\t*{at['HANDLER']}\n\tjmp\t5b"
    yield f"tiers.ask:\n\tmovq\t%rdi, {at['FUNCTION']}\n\tmovq\t%rsi, {at['KIND']}"
    yield "\tsubq\t$8, %rsp"
    yield f"\tmovl\t${base + ASKED}, %edi\n\tcallq\t*{at['POST']}"
    yield f"6:\tmovl\t${base + ANSWERED}, %edi\n\tcallq\t*{at['WAIT']}"
    yield "\ttestl\t%eax, %eax\n\tjne\t6b"
    yield "\taddq\t$8, %rsp\n\tretq"
    yield from _asking("tiers.call", CALL)
    jump = f"shlq\t${_SHIFT}, %r11\n\tjmpq\t*{base + ROWS + CELL}(%r11)"
    yield "\tpopq\t%r11\n\t" + ("jmp\ttiers.enter" if counting else jump)
    yield from _asking_within("tiers.back", BACK_EDGE)
    yield from _asking_within("tiers.failed", GUARD)
    if counting:
        yield from _counting(base, at)


def _asking(label: str, kind: int) -> Iterator[str]:
    """Ask from a function's entry; its number, of r11, is left on the stack."""
    size = 16 * _VECTORS
    yield f"{label}:\n\tpushq\t%r11"
    yield from (f"\tpushq\t%{each}" for each in _SAVED)
    yield f"\tsubq\t${size}, %rsp"
    yield from (f"\tmovups\t%xmm{i}, {16 * i}(%rsp)" for i in range(_VECTORS))
    yield f"\tmovq\t%r11, %rdi\n\tmovl\t${kind}, %esi\n\tcallq\ttiers.ask"
    yield from (f"\tmovups\t{16 * i}(%rsp), %xmm{i}" for i in range(_VECTORS))
    yield f"\taddq\t${size}, %rsp"
    yield from (f"\tpopq\t%{each}" for each in reversed(_SAVED))


def _asking_within(label: str, kind: int) -> Iterator[str]:
    """Ask from the middle of a function, whose stack may stand anywhere."""
    yield f"{label}:\n\tpushq\t%rbp"
    yield from (f"\tpushq\t%{each}" for each in _ALL_SAVED)
    yield "\tmovq\t%rsp, %rbp\n\tsubq\t$256, %rsp\n\tandq\t$-16, %rsp"
    yield from (f"\tmovups\t%xmm{i}, {16 * i}(%rsp)" for i in range(16))
    yield f"\tmovq\t{8 * (len(_ALL_SAVED) + 1)}(%rbp), %rdi"
    yield f"\tmovl\t${kind}, %esi\n\tcallq\ttiers.ask"
    yield from (f"\tmovups\t{16 * i}(%rsp), %xmm{i}" for i in range(16))
    yield "\tmovq\t%rbp, %rsp"
    yield from (f"\tpopq\t%{each}" for each in reversed(_ALL_SAVED))
    yield "\tpopq\t%rbp\n\taddq\t$8, %rsp\n\tretq"


def _counting(base: int, at: dict[str, int]) -> Iterator[str]:
    row = base + ROWS
    owed = (
        f"\tmovq\t%rax, {at['SAVED_A']}\n\tmovq\t%rcx, {at['SAVED_C']}\n"
        f"\tmovq\t{at['TOTAL']}, %rax\n\tmovq\t%rax, %rcx\n"
        f"\tsubq\t{at['LAST']}, %rcx\n\tmovq\t%rax, {at['LAST']}\n"
        f"\tmovq\t{at['OWNER']}, %rax\n\taddq\t%rcx, (%rax)\n"
        f"\tmovq\t{at['ACTIVE']}, %rax\n\taddq\t%rcx, (%rax)\n\tmovq\t{at['SHADOW']}, %rcx"
    )
    restored = f"\tmovq\t{at['SAVED_A']}, %rax\n\tmovq\t{at['SAVED_C']}, %rcx"
    yield f"tiers.enter:\n\tincq\t{at['CALLS']}\n\tdecq\t{at['BOUNDARY']}\n\tje\t3f\n2:\n{owed}"
    yield f"\tmovq\t%rax, 24(%rcx)\n\tmovq\t{at['OWNER']}, %rax\n\tmovq\t%rax, (%rcx)"
    yield "\tmovq\t(%rsp), %rax\n\tmovq\t%rax, 8(%rcx)\n\tmovq\t%rsp, 16(%rcx)"
    yield f"\taddq\t$32, %rcx\n\tmovq\t%rcx, {at['SHADOW']}"
    yield "\tleaq\ttiers.left(%rip), %rax\n\tmovq\t%rax, (%rsp)"
    yield f"\tmovq\t{at['TABLE']}, %rax\n\tleaq\t(%rax,%r11,8), %rax\n\tmovq\t%rax, {at['OWNER']}"
    yield f"\tshlq\t${_SHIFT}, %r11\n\tleaq\t{row + SPENT}(%r11), %rax"
    yield f"\tmovq\t%rax, {at['ACTIVE']}"
    yield f"{restored}\n\tjmpq\t*{row + CELL}(%r11)\n3:"
    yield from _asking("tiers.boundary", AT_BOUNDARY)
    yield f"\tpopq\t%r11\n\tjmp\t2b\ntiers.left:\n\tsubq\t$8, %rsp\n{owed}"
    yield "4:\tsubq\t$32, %rcx\n\tcmpq\t%rsp, 16(%rcx)\n\tjne\t4b"
    yield f"\tmovq\t%rcx, {at['SHADOW']}\n\tmovq\t(%rcx), %rax\n\tmovq\t%rax, {at['OWNER']}"
    yield f"\tmovq\t24(%rcx), %rax\n\tmovq\t%rax, {at['ACTIVE']}"
    yield f"\tmovq\t8(%rcx), %rax\n\tmovq\t%rax, (%rsp)\n{restored}\n\tretq"

"""Counting in assembly: instructions of each machine block, and jumps back.

Five ``mov`` and ``lea`` at the start of a block add its instructions to one total; they change no
flags, and the units are compiled without a red zone. A jump back at O0, where blocks stand in the
order of the IR, goes through a countdown of its function.

A program's calls go through stubs. A stub counts its function's calls down to the next power of two
and jumps through the function's cell, where its present code stands. Where instructions are
counted, what has been executed since the last call or return is added to the function that did it,
in the table of the interval that its activation began in; a return goes by way of a shadow stack.

The program has a thread of its own, which asks the other at each event and waits. So nothing but
the program allocates in its arena, and its stubs, stack and data stand at the same addresses in
every run: programs that hash addresses do the same each time.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from mlgo_gym.lab.tiers._rest import ASKS
from mlgo_gym.llvm import NAME_PATTERN

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

_LABEL: Final = re.compile(r"^(\.LBB\d+_\d+):")
_BLOCK: Final = re.compile(r"^(?:\.LBB\d+_\d+:|# %bb\.\d+:)")
_NAMED: Final = re.compile(rf"^(?:(\.LBB\d+_\d+):|# %bb\.\d+:)\s*# %({NAME_PATTERN})$")
_ESCAPED: Final = re.compile(r'\$frame_escape_(\d+)"? = (-?\d+)$', re.MULTILINE)
_PUSHES: Final = re.compile(r"^\tpushq\t%\w+")
_GROWS: Final = re.compile(r"^\tsubq\t\$(\d+), %rsp\b")
_REALIGNED: Final = re.compile(r"^\tandq\t\$-\d+, %rsp\b")
_LEAVES: Final = re.compile(
    r"^\t(?:addq\t\$\d+, %rsp|popq\t%\w+|leaq\t-?\d+\(%rbp\), %rsp|movq\t%rbp, %rsp)\b"
)
_JUMP: Final = re.compile(r"^\t(j\w+)\t(\.LBB\d+_\d+)\b")


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


def counting(text: str, code: str, total: int, saved: int) -> str:
    """The assembly of a unit, which counts what it executes, but for asking about guards.

    Args:
        text: of a unit.
        code: the name of its code.
        total: the address below 2 GiB of the count.
        saved: one where a register is kept for a moment.
    """
    head, body, tail = _function(text, code)
    out: list[str] = []
    block: list[str] = []
    is_asking = False

    def flush() -> None:
        count = sum(map(_is_instruction, block))
        if count and not is_asking:
            out.extend(
                (
                    f"\tmovq\t%rax, {saved}",
                    f"\tmovq\t{total}, %rax",
                    f"\tleaq\t{count}(%rax), %rax",
                    f"\tmovq\t%rax, {total}",
                    f"\tmovq\t{saved}, %rax",
                )
            )
        out.extend(block)
        block.clear()

    for line in body:
        if _BLOCK.match(line):
            flush()
            is_asking = line.endswith(f"# %{ASKS}")
            out.append(line)
        else:
            block.append(line)
    flush()
    return "\n".join([*head, *out, *tail]) + "\n"


def counting_back(text: str, code: str, row: int, heads: Mapping[str, int]) -> str:
    """The assembly of a unit, whose jumps back count down; at zero they ask first.

    Behind that, a loop's jump goes to the rest of the function instead, where that has an address.

    Args:
        text: of a unit compiled at O0.
        code: the name of its code.
        row: the address of its function's data, as `mlgo_gym.lab.tiers._assembly` has it.
        heads: the numbers of the blocks of LLVM's IR that the rest can begin at.
    """
    head, body, tail = _function(text, code)
    numbers = _entered(body, heads)
    leaving = "\n".join(_epilogue(body))
    seen: set[str] = set()
    back: list[str] = []
    out: list[str] = []
    for line in body:
        if match := _LABEL.match(line):
            seen.add(match[1])
        match = _JUMP.match(line)
        if match and match[2] in seen:
            place, number = f".Ltiers_back_{len(back)}", numbers.get(match[2], -1)
            back.append(
                f"{place}:\n\tdecq\t{row + BACK}\n\tjne\t{match[2]}\n"
                f"\tmovq\t${number}, {row + LOOP}\n\tcallq\t*{row + SLOW}\n"
            )
            if number >= 0:
                back[-1] += (
                    f"\tmovq\t{row + ENTRY}, %rax\n\ttestq\t%rax, %rax\n\tje\t{match[2]}\n"
                    f"\tmovq\t$0, {row + ENTRY}\n\tmovq\t%rbp, %rdi\n"
                    "\tpushq\t%rsp\n\tpushq\t(%rsp)\n\tandq\t$-16, %rsp\n"
                    f"\tcallq\t*%rax\n\tmovq\t8(%rsp), %rsp\n{leaving}\n"
                )
            back[-1] += f"\tjmp\t{match[2]}"
            out.append(f"\t{match[1]}\t{place}")
        else:
            out.append(line)
    return "\n".join([*head, *out, *back, *tail]) + "\n"


def frame_offsets(text: str) -> list[int]:
    """The offsets from the frame pointer that ``llvm.localescape`` has named, in its order."""
    found = {int(match[1]): int(match[2]) for match in _ESCAPED.finditer(text)}
    return [found[number] for number in range(len(found))]


def resumable(text: str, code: str, heads: Mapping[str, int]) -> tuple[str, int]:
    """The assembly of a unit, with a way into each block, and the bytes of its frame.

    The symbol `resumed` of its code takes a frame's pointer and a block's number. It returns what
    the function does. The text is as it was, and the size 0, where not all blocks can be found.

    Args:
        text: of a unit compiled at O0, whose frame has a pointer.
        code: the name of its code.
        heads: the numbers of the blocks of LLVM's IR, from 0 on.
    """
    head, body, tail = _function(text, code)
    prologue, size = _prologue(body)
    out: list[str] = []
    found: dict[int, str] = {}
    for line in body:
        out.append(line)
        match = _NAMED.match(line)
        if match and match[2] in heads and heads[match[2]] not in found:
            found[heads[match[2]]] = label = f".Ltiers_block_{heads[match[2]]}"
            out.append(f"{label}:")
    if not heads or len(found) < len(heads) or not prologue or any(map(_REALIGNED.match, body)):
        return text, 0
    name = resumed(code)
    way = [f'\t.globl\t"{name}"', f'"{name}":', *prologue, "\tleaq\t.Ltiers_blocks(%rip), %rax"]
    way += ["\tmovq\t(%rax,%rsi,8), %rax", "\tmovq\t%rdi, %rbp", "\tjmpq\t*%rax", "\t.p2align\t3"]
    way += [".Ltiers_blocks:", *(f"\t.quad\t{found[number]}" for number in range(len(heads)))]
    return "\n".join([*head, *out, *way, *tail]) + "\n", size


def resumed(code: str) -> str:
    """The name of the way into the blocks of a function's code."""
    return f"{code}.resumed"


def _prologue(body: Sequence[str]) -> tuple[list[str], int]:
    """A function's first instructions on the stack, and the bytes below its frame's pointer."""
    found: list[str] = []
    size = 0
    for line in body:
        if match := _PUSHES.match(line):
            found.append(match[0])
            size += 8
        elif match := _GROWS.match(line):
            found.append(match[0])
            return found, size + int(match[1]) - 8
        elif _LABEL.match(line):
            break
    return found, max(size - 8, 0)


def _entered(body: Sequence[str], heads: Mapping[str, int]) -> dict[str, int]:
    """The numbers of blocks by the labels where they begin; none in a frame that is realigned."""
    if any(map(_REALIGNED.match, body)):
        return {}
    found: dict[str, int] = {}
    begun: set[str] = set()
    for line in body:
        if not (match := _NAMED.match(line)):
            continue
        if match[1] and match[2] in heads and match[2] not in begun:
            found[match[1]] = heads[match[2]]
        begun.add(match[2])
    return found


def _epilogue(body: Sequence[str]) -> list[str]:
    """A function's last instructions, with the return; a trap, where it never returns."""
    place = next((i for i in reversed(range(len(body))) if body[i].strip() == "retq"), None)
    if place is None:
        return ["\tud2"]
    found = [body[place]]
    for line in reversed(body[:place]):
        if _LEAVES.match(line):
            found.insert(0, line)
        elif not line.startswith("\t.cfi"):
            break
    return found


def _function(text: str, code: str) -> tuple[list[str], list[str], list[str]]:
    lines = text.splitlines()
    names = {f"{code}:", f'"{code}":'}
    start = next(i for i, line in enumerate(lines) if line.split("#")[0].strip() in names) + 1
    end = next(i for i in range(start, len(lines)) if lines[i].startswith(".Lfunc_end"))
    return lines[:start], lines[start:end], lines[end:]


def _is_instruction(line: str) -> bool:
    return line.startswith("\t") and not line.lstrip().startswith((".", "#"))

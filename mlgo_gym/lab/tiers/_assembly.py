"""Counting in assembly: instructions of each machine block, and jumps back.

Five ``mov`` and ``lea`` at the start of a block add its instructions to one total; they change no
flags, and the units are compiled without a red zone. A jump back at O0, where blocks stand in the
order of the IR, goes through a countdown of its function.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

from mlgo_gym.lab.tiers._guard import ASKS
from mlgo_gym.lab.tiers._stubs import BACK, ENTRY, LOOP, SLOW
from mlgo_gym.llvm import NAME_PATTERN

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
        row: the address of its function's data, as `mlgo_gym.lab.tiers._stubs` has it.
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

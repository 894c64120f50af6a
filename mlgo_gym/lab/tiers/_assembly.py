"""Counting in assembly: instructions of each machine block, and jumps back.

Five ``mov`` and ``lea`` at the start of a block add its instructions to one total; they change no
flags, and the units are compiled without a red zone. A jump back at O0, where blocks stand in the
order of the IR, goes through a countdown of its function.
"""

from __future__ import annotations

import re
from typing import Final

_LABEL: Final = re.compile(r"^(\.LBB\d+_\d+):")
_BLOCK: Final = re.compile(r"^(?:\.LBB\d+_\d+:|# %bb\.\d+:)")
_JUMP: Final = re.compile(r"^\t(j\w+)\t(\.LBB\d+_\d+)\b")


def counting(text: str, code: str, total: int, saved: int) -> str:
    """The assembly of a unit, which counts what it executes.

    Args:
        text: of a unit.
        code: the name of its code.
        total: the address below 2 GiB of the count.
        saved: one where a register is kept for a moment.
    """
    head, body, tail = _function(text, code)
    out: list[str] = []
    block: list[str] = []

    def flush() -> None:
        count = sum(map(_is_instruction, block))
        if count:
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
            out.append(line)
        else:
            block.append(line)
    flush()
    return "\n".join([*head, *out, *tail]) + "\n"


def counting_back(text: str, code: str, countdown: int, slow: int) -> str:
    """The assembly of a unit, whose jumps back count down; at zero they go to ``slow`` first.

    Args:
        text: of a unit compiled at O0.
        code: the name of its code.
        countdown: the address of its count.
        slow: where the address of what is called there stands; it keeps all registers.
    """
    head, body, tail = _function(text, code)
    seen: set[str] = set()
    back: list[str] = []
    out: list[str] = []
    for line in body:
        if match := _LABEL.match(line):
            seen.add(match[1])
        match = _JUMP.match(line)
        if match and match[2] in seen:
            place = f".Ltiers_back_{len(back)}"
            back.append(
                f"{place}:\n\tdecq\t{countdown}\n\tjne\t{match[2]}\n\tcallq\t*{slow}\n"
                f"\tjmp\t{match[2]}"
            )
            out.append(f"\t{match[1]}\t{place}")
        else:
            out.append(line)
    return "\n".join([*head, *out, *back, *tail]) + "\n"


def _function(text: str, code: str) -> tuple[list[str], list[str], list[str]]:
    lines = text.splitlines()
    names = {f"{code}:", f'"{code}":'}
    start = next(i for i, line in enumerate(lines) if line.split("#")[0].strip() in names) + 1
    end = next(i for i in range(start, len(lines)) if lines[i].startswith(".Lfunc_end"))
    return lines[:start], lines[start:end], lines[end:]


def _is_instruction(line: str) -> bool:
    return line.startswith("\t") and not line.lstrip().startswith((".", "#"))

"""Counting in assembly: instructions of each machine block, and jumps back.

Five ``mov`` and ``lea`` at the start of a block add its instructions to one total; they change no
flags, and the units are compiled without a red zone. A jump back at O0, where blocks stand in the
order of the IR, goes through a countdown of its function.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

_LABEL: Final = re.compile(r"^(\.LBB\d+_\d+):")
_BLOCK: Final = re.compile(r"^(?:\.LBB\d+_\d+:|# %bb\.\d+:)")
_JUMP: Final = re.compile(r"^\t(j\w+)\t(\.LBB\d+_\d+)\b")


@dataclass(frozen=True, slots=True)
class Places:
    """Addresses below 2 GiB that the counting code uses.

    Attributes:
        total: of the instructions executed.
        saved: where a register is kept for a moment.
    """

    total: int
    saved: int


def counting(text: str, code: str, places: Places) -> str:
    """The assembly of a unit, which counts what it executes."""
    head, body, tail = _function(text, code)
    out: list[str] = []
    block: list[str] = []
    starts: list[str] = []

    def flush() -> None:
        count = sum(map(_is_instruction, block))
        if count:
            out.extend(
                (
                    f"\tmovq\t%rax, {places.saved}",
                    f"\tmovq\t{places.total}, %rax",
                    f"\tleaq\t{count}(%rax), %rax",
                    f"\tmovq\t%rax, {places.total}",
                    f"\tmovq\t{places.saved}, %rax",
                )
            )
        out.extend(block)
        block.clear()

    for line in body:
        if _BLOCK.match(line):
            flush()
            starts.append(line)
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

"""Starting a program that can start no other: the second fence around clang's driver."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, TypeVar

from corpus_tools.children import check_statuses, start_guardian
from corpus_tools.sandbox import confine

_Result = TypeVar("_Result")
_ELF64: Final = b"\x7fELF\x02\x01"
_HEADER, _SEGMENT = 64, struct.Struct("<IIQQQQQQ")
_INTERPRETER: Final = 3


def start_alone(program: Path, start: Callable[[], _Result]) -> _Result:
    """Do what starts a program, which can then execute itself alone and write nothing.

    It may read all. Where the kernel has no Landlock, and for a program that is a script and so
    starts others by itself, nothing is held back.

    Raises:
        ToolchainError: this process ignores SIGCHLD, and no status of the program's is known.
    """
    check_statuses()
    start_guardian()
    programs = _with_interpreter(program)
    if not programs:
        return start()

    def confined() -> _Result:
        confine(
            readable=[Path("/")],
            writable=[Path(os.devnull)],
            executable=programs,
            computes_only=False,
        )
        return start()

    with ThreadPoolExecutor(1) as thread:
        return thread.submit(confined).result()


def _with_interpreter(program: Path) -> list[Path]:
    """An ELF program and what loads it; nothing where it is no such program."""
    with program.open("rb") as file:
        header = file.read(_HEADER)
        if len(header) < _HEADER or not header.startswith(_ELF64):
            return []
        (offset,) = struct.unpack_from("<Q", header, 32)
        (count,) = struct.unpack_from("<H", header, 56)
        file.seek(offset)
        table = file.read(count * _SEGMENT.size)
        for kind, _, start, _, _, size, *_ in _SEGMENT.iter_unpack(table):
            if kind == _INTERPRETER:
                file.seek(start)
                return [program, Path(file.read(size).rstrip(b"\0").decode())]
    return [program]

"""The log of what ``mlgo-cc --mlgo-keep-smaller`` has kept.

A line for each object that was made, with tabs: what was kept, its bytes of code, those of clang's
own object, and the object's path.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from mlgo_gym.base import InputError, read_bounded

MAX_BYTES: Final = 1 << 28
"""The longest log that is read."""

_FIELDS: Final = 4
_SIZE: Final = re.compile(r"\d{1,20}", re.ASCII)


@dataclass(frozen=True, slots=True)
class KeptObjects:
    """The objects of which the same was kept; bytes are of their code."""

    kept: str
    objects: int
    clang_bytes: int
    kept_bytes: int


def read_kept_log(path: Path) -> list[KeptObjects]:
    """Count the kept objects by whose they are; an object made twice counts as the last time.

    Raises:
        InputError: the file cannot be read, or a line is no line of such a log.
    """
    name = f"log of what was kept {str(path)!r}"
    try:
        lines = read_bounded(path, MAX_BYTES).decode("utf-8", "surrogateescape").split("\n")
    except OSError as error:
        raise InputError(f"{name}: cannot be read: {error.strerror or error}") from error
    last: dict[str, tuple[str, int, int]] = {}
    for number, line in enumerate(lines[: None if lines[-1] else -1], 1):
        fields = line.split("\t", _FIELDS - 1)
        if len(fields) != _FIELDS or not all(map(_SIZE.fullmatch, fields[1:3])):
            expected = "what was kept, two sizes in bytes and a path, with tabs between them"
            raise InputError(f"{name}: line {number}: expected {expected}, found {line[:80]!r}")
        last[fields[3]] = fields[0], int(fields[1]), int(fields[2])
    return _added_up(list(last.values()))


def _added_up(objects: Sequence[tuple[str, int, int]]) -> list[KeptObjects]:
    kinds = dict.fromkeys(kept for kept, *_ in sorted(objects))
    return [
        KeptObjects(
            kind,
            sum(kept == kind for kept, *_ in objects),
            sum(clangs for kept, _, clangs in objects if kept == kind),
            sum(size for kept, size, _ in objects if kept == kind),
        )
        for kind in kinds
    ]

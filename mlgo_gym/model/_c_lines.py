"""The lines of a C function; what is computed once, for the next line alone, is written there."""

from __future__ import annotations

import contextlib
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

_COLUMNS: Final = 100
_VALUE: Final = re.compile(r"\bv_\d+\b")
_TIGHT: Final = re.compile(r"[\w.]+(\([^()]*\)|\[[^\[\]()]*\])?")


@dataclass(frozen=True, slots=True)
class _Line:
    """A line; of a value also its name, and the text up to where it begins."""

    depth: int
    text: str
    name: str = ""
    head: str = ""
    is_block: bool = False

    def full(self) -> str:
        text = f"{self.head}{self.text};" if self.name else self.text
        return f"{'  ' * self.depth}{text}" if text else ""


class CLines:
    """Lines in blocks."""

    def __init__(self) -> None:
        self._lines: Final[list[_Line]] = []
        self._depth = 1

    def __len__(self) -> int:
        return len(self._lines)

    def add(self, text: str) -> None:
        """Append a statement, a declaration or a comment."""
        self._lines.append(_Line(self._depth, text))

    def value(self, head: str, expression: str, name: str) -> str:
        """Append a value's definition, which has no effect; gives its name."""
        self._lines.append(_Line(self._depth, expression, name, head.format(name)))
        return name

    @contextlib.contextmanager
    def block(self, head: str) -> Iterator[None]:
        """A block in braces."""
        self._lines.append(_Line(self._depth, head, is_block=True))
        self._depth += 1
        yield
        self._depth -= 1
        self._lines.append(_Line(self._depth, "}", is_block=True))

    def text(self) -> str:
        """All lines, without values that nobody uses."""
        kept: list[_Line] = []
        uses: Counter[str] = Counter()
        for line in reversed(self._lines):
            if line.name and not uses[line.name]:
                continue
            uses.update(_VALUE.findall(line.text))
            kept.append(line)
        return "\n".join(line.full() for line in _merged(kept[::-1], uses))


def _merged(lines: list[_Line], uses: Counter[str]) -> list[_Line]:
    """Put values that are used once into the statement that follows them."""
    merged: list[_Line] = []
    for first in lines:
        line = first
        for value in reversed(_waiting(merged, first, uses)):
            is_tight = _TIGHT.fullmatch(value.text) or line.text.endswith(f" = {value.name};")
            text = value.text if is_tight else f"({value.text})"
            changed = re.sub(rf"\b{value.name}\b", text.replace("\\", r"\\"), line.text)
            longer = replace(line, text=changed)
            if changed != line.text and len(longer.full()) <= _COLUMNS:
                line = longer
                merged.remove(value)
        merged.append(line)
    return merged


def _waiting(merged: list[_Line], line: _Line, uses: Counter[str]) -> list[_Line]:
    """The values right before a line, of which it may be the one user."""
    found: list[_Line] = []
    if line.is_block:
        return found
    for value in reversed(merged[-6:]):
        if not value.name or value.depth != line.depth:
            break
        if uses[value.name] == 1:
            found.append(value)
    return found[::-1]

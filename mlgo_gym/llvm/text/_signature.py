"""The parts of a ``define`` line: what a function returns, what it takes, and its attributes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from mlgo_gym.llvm.text._module_text import NAME_PATTERN, STRING

_NAMED: Final = re.compile(rf" (%{NAME_PATTERN})$")
_OPENING: Final = {"}": "{", ">": "<", "]": "["}


def closing(text: str, start: int) -> int:
    """Just behind the bracket that closes the one there; strings hold none."""
    blanked = STRING.sub(lambda match: "_" * len(match[0]), text[start:])
    depth = 0
    for index, character in enumerate(blanked):
        depth += (character in "[{<(") - (character in "]})>")
        if depth == 0:
            return start + index + 1
    return len(text)


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of a function.

    Attributes:
        kind: its type.
        written: its type and attributes, as a call has them too.
        name: with its mark, as ``%0``.
    """

    kind: str
    written: str
    name: str


@dataclass(frozen=True, slots=True)
class Signature:
    """A ``define`` line, taken apart.

    Attributes:
        before: all before the name: linkage, calling convention, attributes and type of the result.
        name: as it is written after ``@``.
        parameters: in their order.
        is_variadic: whether more arguments can follow.
        behind: all behind the parameters: attributes, and what opens the body.

    >>> found = Signature.read("define noundef i32 @f(ptr noundef %0, ...) #1 {")
    >>> found.result, found.parameters[0].name, found.is_variadic, found.behind
    ('i32', '%0', True, ' #1 {')
    """

    before: str
    name: str
    parameters: tuple[Parameter, ...]
    is_variadic: bool
    behind: str

    @classmethod
    def read(cls, header: str) -> Signature:
        """Take a ``define`` line apart."""
        before, _, rest = header.partition(" @")
        match = re.match(NAME_PATTERN, rest)
        name = match[0] if match else ""
        end = closing(rest, len(name))
        parts = list(_parts(rest[len(name) + 1 : end - 1]))
        parameters = tuple(_parameter(each) for each in parts if each != "...")
        return cls(before, name, parameters, "..." in parts, rest[end:])

    @property
    def result(self) -> str:
        """The type of the result; its attributes stand before it."""
        text = self.before.rstrip()
        opening = _OPENING.get(text[-1:])
        if opening is None:
            return text.rpartition(" ")[2]
        depth = 0
        for place in range(len(text) - 1, -1, -1):
            depth += (text[place] == text[-1]) - (text[place] == opening)
            if not depth:
                return text[place:]
        return ""


def _parts(text: str) -> Iterator[str]:
    """The parts between commas, outside of brackets and strings."""
    start = place = 0
    blanked = STRING.sub(lambda match: "_" * len(match[0]), text)
    while place < len(blanked):
        if blanked[place] in "[{<(":
            place = closing(text, place)
        elif blanked[place] == ",":
            yield text[start:place].strip()
            start = place = place + 1
        else:
            place += 1
    if last := text[start:].strip():
        yield last


def _parameter(text: str) -> Parameter:
    match = _NAMED.search(text)
    written = text[: match.start()] if match else text
    end = closing(written, 0) if written[:1] in ("[", "{", "<") else len(written.split(" ")[0])
    return Parameter(written[:end], written, match[1] if match else "")

"""Origins of the instructions of a lowered graph, as debug locations in its LLVM IR.

Each operator is a function of its own to DWARF, inlined into the model's, and so is what is fused
into it. Profilers and debuggers name them so, and the code is the same without.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

_FIRST: Final = 5
"""The number of the first metadata of an origin; `Origins.metadata` has those before."""

_MOST_CHARACTERS: Final = 200
_UNIT: Final = "language: DW_LANG_C, file: !1, isOptimized: true, emissionKind: FullDebug"
_FUNCTION: Final = "file: !1, type: !2, spFlags: DISPFlagDefinition | DISPFlagOptimized"


@dataclass(frozen=True, slots=True)
class Origin:
    """An operator, or what is fused into one.

    Attributes:
        ids: its number, from 1, and before it, of something fused, that of its own.
        name: what it is called.
    """

    ids: tuple[int, ...]
    name: str


class Origins:
    """Knows what is being written comes of, and marks instructions with it.

    Attributes:
        found: all there are, in the order of their ids.
        evaluated: how many instructions of each one evaluation runs through, before they are
            optimised.
    """

    def __init__(self) -> None:
        self.found: Final[list[Origin]] = []
        self.evaluated: Final = Counter[Origin]()
        self._open: list[int] = []

    @contextlib.contextmanager
    def within(self, name: str) -> Iterator[None]:
        """Give everything marked inside this origin."""
        outer = self.found[self._open[-1]].ids if self._open else ()
        known = [(each.name, each.ids[1:]) for each in self.found]
        is_known = bool(outer) and (name, outer) in known
        index = known.index((name, outer)) if is_known else len(known)
        if not is_known:
            self.found.append(Origin((index + 1, *outer), name))
        self._open.append(index)
        yield
        self._open.pop()

    def mark(self, evaluated: int) -> str:
        """The mark behind an instruction that is evaluated so often."""
        if not self._open:
            return f", !dbg !{_FIRST}"
        origin = self.found[self._open[-1]]
        self.evaluated[origin] += evaluated
        return f", !dbg !{_numbers(origin)[2]}"

    def metadata(self, function: str) -> list[str]:
        """The lines at the module's end, and how its function is marked: ``!dbg !4``."""
        unit, flags = f"!{self._end}", f"!{self._end + 1}"
        what = f"unit: {unit}, {_FUNCTION}"
        lines = [
            f'!1 = !DIFile(filename: "{_text(function)}", directory: "")',
            "!2 = !DISubroutineType(types: !0)",
            f"!llvm.dbg.cu = !{{{unit}}}",
            f"!llvm.module.flags = !{{{flags}}}",
            f'{flags} = !{{i32 2, !"Debug Info Version", i32 3}}',
            f"{unit} = distinct !DICompileUnit({_UNIT})",
            f'!4 = distinct !DISubprogram(name: "{_text(function)}", {what})',
            f"!{_FIRST} = !DILocation(line: 0, scope: !4)",
        ]
        for each in self.found:
            scope, call, location = _numbers(each)
            line, caller = f"line: {each.ids[0]}", "scope: !4"
            if len(each.ids) > 1:
                outer = _numbers(self.found[each.ids[1] - 1])
                caller = f"scope: !{outer[0]}, inlinedAt: !{outer[1]}"
            lines += [
                f'!{scope} = distinct !DISubprogram(name: "{_text(each.name)}", {what})',
                f"!{call} = distinct !DILocation({line}, {caller})",
                f"!{location} = !DILocation({line}, scope: !{scope}, inlinedAt: !{call})",
            ]
        return lines

    @property
    def _end(self) -> int:
        return _FIRST + 1 + 3 * len(self.found)


def _numbers(origin: Origin) -> tuple[int, int, int]:
    """The metadata numbers of its function, of its inlined place, and of the marked location."""
    first = _FIRST + 1 + 3 * (origin.ids[0] - 1)
    return first, first + 1, first + 2


def _text(name: str) -> str:
    """A name as LLVM's assembly writes it."""
    return "".join(
        chr(byte) if 32 <= byte < 127 and byte not in b'"\\' else f"\\{byte:02x}"
        for byte in name[:_MOST_CHARACTERS].encode("utf-8", "backslashreplace")
    )

"""Sources and functions' IR on the page of ``mlgo-gym explain``."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from mlgo_gym.cli import Cell, Listing, Text, source_name
from mlgo_gym.lab.insight._function_texts import FunctionTexts
from mlgo_gym.lab.insight._lines import LineDecisions
from mlgo_gym.lab.insight.commands._show_decisions import Names, function_anchor

_AROUND: Final = 3
_MOST_LINES: Final = 400
_DEBUG: Final = re.compile(r", !dbg !\d+|, !noundef !\d+|^ +#dbg_.*\n", re.MULTILINE)
_WRAPPER: Final = textwrap.TextWrapper(
    78, subsequent_indent=" " * 8, break_on_hyphens=False, replace_whitespace=False
)


def function_sections(texts: Iterable[FunctionTexts], names: Names) -> list[Listing | Text]:
    """Each function's IR three times: as the bitcode has it, and under both policies."""
    parts: list[Listing | Text] = []
    for each in texts:
        anchor = function_anchor(each.key, each.function)
        headings = "as the bitcode has it", *(f"optimised under {name}" for name in names)
        for heading, text in zip(headings, (each.plain, *each.optimised), strict=True):
            title = f"{source_name(each.function)}, {heading}"
            parts.append(Text(title, _shown(text), anchor))
            anchor = ""
    return parts


def source_listing(
    file: str, lines: Sequence[str], decided: Mapping[int, Sequence[LineDecisions]]
) -> Listing:
    """A file's lines around decisions, with these in the margin."""
    near = {
        number
        for line in decided
        for number in range(line - _AROUND, line + _AROUND + 1)
        if 1 <= number <= len(lines)
    }
    rows: list[tuple[Cell, str, str]] = []
    last = 0
    for number in sorted(near):
        if number > last + 1:
            rows.append((Cell(""), "", "…"))
        last = number
        first, *others = [_margin(each) for each in decided.get(number, ())] or [Cell("")]
        rows.append((first, str(number), lines[number - 1].expandtabs()))
        rows += [(each, "", "") for each in others]
    if missing := [line for line in decided if line > len(lines)]:
        what = f"{len(missing)} lines with decisions are behind the file's end: it is another one"
        rows.append((Cell(""), "", what))
    return Listing(file, rows)


def _margin(decided: LineDecisions) -> Cell:
    """How many of the calls were inlined under both, and the difference in bytes."""
    before, after = (
        f"{inlined} of {asked}" if asked else "not asked"
        for inlined, asked in zip(decided.inlined, decided.asked, strict=True)
    )
    text = f"{source_name(decided.callee)}: {before}"
    if before == after and not decided.difference_bytes:
        return Cell(text)
    code = f", {decided.difference_bytes:+,}" if decided.difference_bytes else ""
    return Cell(f"{text} → {after}{code}", kind="differs")


def _shown(text: str) -> str:
    """Without debug information, and cut where it is too long to be read."""
    lines = _DEBUG.sub("", text).splitlines()
    if not lines:
        return "There is none."
    if (left := len(lines) - _MOST_LINES) > 0:
        lines[_MOST_LINES:] = [f"… {left:,} more lines"]
    return "\n".join(_WRAPPER.fill(each) for each in lines)

"""Decisions that differ, in terminals and on pages."""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from operator import attrgetter
from typing import Any, Final, NamedTuple

from mlgo_gym.cli import Cell, Grid, Listing, Row, Text, amount, ratio, source_name
from mlgo_gym.corpus import ModuleKey
from mlgo_gym.lab.insight._decision_changes import (
    FunctionChange,
    FunctionTexts,
    LineDecisions,
    ModuleChange,
    OtherDecision,
)
from mlgo_gym.llvm import Site

Names = tuple[str, str]
"""Of the two policies."""

_TEN: Final = (("Decisions that cost most", 1), ("Decisions that saved most", -1))
_MOST: Final = 10
_KINDS: Final = {1: "worse", -1: "better"}
_WITHOUT_EFFECT: Final = ((0, None), (None, 0))
_AROUND: Final = "calls, and code around them"
_ANSWERS: Final = {0: "leave", 1: "inline", None: "not asked"}

_LINES_AROUND: Final = 3
_MOST_LINES: Final = 400
_DEBUG: Final = re.compile(r", !dbg !\d+|, !noundef !\d+|^ +#dbg_.*\n", re.MULTILINE)
_WRAPPER: Final = textwrap.TextWrapper(
    78, subsequent_indent=" " * 8, break_on_hyphens=False, replace_whitespace=False
)


class _Changed(NamedTuple):
    """A way in which functions change: its heading, what differs, and in which direction."""

    title: str
    difference: Callable[[FunctionChange], int | None]
    sign: int

    def size(self, function: FunctionChange) -> int:
        """The difference, above zero where a function has changed in this way."""
        return self.sign * (self.difference(function) or 0)


_EXECUTED: Final = (
    _Changed("Functions that execute more", attrgetter("difference_executed"), 1),
    _Changed("Functions that execute less", attrgetter("difference_executed"), -1),
)
_BYTES: Final = (
    _Changed("Functions that grew", attrgetter("difference_bytes"), 1),
    _Changed("Functions that shrank", attrgetter("difference_bytes"), -1),
)


def headings(names: Names) -> tuple[str, str]:
    """The title of a page, and what stands below it."""
    before, after = names
    introduction = (
        f"Bytes of code; negative is smaller under {after}. A call is where it stands in the "
        "source, or else by its number among the calls of its function; behind @ are the calls "
        "through which it came."
    )
    return f"Decisions of {before} and {after}", introduction


def sections(
    changes: Sequence[ModuleChange], names: Names, count: int
) -> list[tuple[str, list[Grid | str]]]:
    """Headings, each with grids and texts: modules, functions, and the decisions in them."""
    functions = [each for change in changes for each in change.functions]
    parts: list[tuple[str, list[Grid | str]]] = [
        ("Modules", [_modules(changes, names), _made_of(changes)])
    ]
    if parted := [each for each in changes if each.first]:
        parts.append(("Where ways part", [_partings(parted, names)]))
    chosen = changed_most(changes, count)
    grids = {title: _of_functions(title, chosen[title], names) for title in chosen}
    parts += [(each.title, grids[each.title]) for each in _EXECUTED if each.title in grids]
    parts += [(title, [grid]) for title, grid in _ten_most(functions, names)]
    parts += [(each.title, grids[each.title]) for each in _BYTES if each.title in grids]
    return parts


def changed_most(changes: Sequence[ModuleChange], count: int) -> dict[str, list[FunctionChange]]:
    """The functions that changed most, in each way that some did, by what that is called."""
    functions = [each for change in changes for each in change.functions]
    chosen = {}
    for way in _EXECUTED + _BYTES:
        found = [each for each in functions if way.size(each) > 0]
        found.sort(key=way.size, reverse=True)
        if found:
            chosen[way.title] = found[:count]
    return chosen


def changes_record(changes: Sequence[ModuleChange], names: Names) -> dict[str, Any]:
    """Return the changes as JSON values."""
    return {"policies": list(names), "modules": [_module_record(each) for each in changes]}


def _modules(changes: Sequence[ModuleChange], names: Names) -> Grid:
    rows: list[Row] = [[str(each.key.name), *_sizes(*each.text_bytes)] for each in changes]
    footer: Row = []
    if len(changes) > 1:
        before, after = (sum(each.text_bytes[index] for each in changes) for index in (0, 1))
        footer = [f"{len(changes):,} modules", *_sizes(before, after)]
    return Grid(("module", *names, "change"), rows, footer, folds=True)


def _made_of(changes: Sequence[ModuleChange]) -> Grid:
    """Sums of what decisions add and take, and the rest, which is of none of them."""
    costs = [cost for each in changes for cost in each.costs]
    around = math.fsum(each.around_bytes for each in changes)
    rows: list[Row] = [
        _sum("decisions that cost", [each for each in costs if each > 0]),
        _sum("decisions that saved", [each for each in costs if each < 0]),
        [_AROUND, "", _difference(around)],
    ]
    footer = _sum("all of it", costs, around)
    return Grid(("what the change is made of", "decisions", "bytes"), rows, footer, folds=True)


def _sum(title: str, costs: Sequence[float], rest: float = 0.0) -> Row:
    return [title, amount(len(costs)), _difference(math.fsum([*costs, rest]))]


def _difference(size_bytes: float) -> Cell:
    number = round(size_bytes)
    kind = _KINDS.get((number > 0) - (number < 0), "")
    return Cell(f"{number:+,}" if number else "0", size_bytes, kind)


def _sizes(before: int, after: int) -> Row:
    return [amount(before), amount(after), ratio(after, before)]


def _partings(changes: Sequence[ModuleChange], names: Names) -> Grid:
    rows: list[Row] = []
    for each in changes:
        if each.first:
            site = each.first.shown.site
            what = f"in {source_name(site.caller)}, {each.key.name}"
            rows.append([Cell(_call(site), None, note=what), *_answers(each.first)])
    return Grid(("where ways part", *names), rows, folds=True)


def _of_functions(
    title: str, functions: Sequence[FunctionChange], names: Names
) -> list[Grid | str]:
    decisions = [_decisions(each, names) for each in functions if each.decisions]
    return [_functions(title, functions, names), *decisions]


def _functions(title: str, functions: Sequence[FunctionChange], names: Names) -> Grid:
    widest = max(abs(each.difference_bytes) for each in functions) or 1
    is_known = any(each.difference_executed is not None for each in functions)
    rows: list[Row] = []
    for each in functions:
        sizes = [
            Cell("none", -1.0) if size is None else amount(size)
            for size in (each.before_bytes, each.after_bytes)
        ]
        difference = each.difference_bytes
        change = Cell(
            f"{difference:+,}",
            difference,
            "worse" if difference > 0 else "better",
            bar=difference / widest,
        )
        counts = [_executed(each)] if is_known else []
        named = Cell(source_name(each.function), anchor=function_anchor(each.key, each.function))
        rows.append([named, *sizes, change, *counts, amount(len(each.decisions))])
    counted = ["executed"] if is_known else []
    return Grid((title.lower(), *names, "change", *counted, "decisions"), rows, folds=True)


def _ten_most(functions: Sequence[FunctionChange], names: Names) -> Iterator[tuple[str, Grid]]:
    """The decisions that add most to the code, and take most from it."""
    others = [(each, function) for function in functions for each in function.decisions]
    for title, sign in _TEN:
        found = [each for each in others if round(sign * each[0].cost_bytes) > 0]
        found.sort(key=lambda each: -abs(each[0].cost_bytes))
        rows: list[Row] = []
        for each, function in found[:_MOST]:
            note = f"in {source_name(function.function)}, {function.key.name}"
            cost = _difference(each.cost_bytes)
            rows.append([Cell(_call(each.shown.site), note=note), *_answers(each), cost])
        if rows:
            yield title, Grid((title.lower(), *names, "bytes"), rows, folds=True)


def _decisions(change: FunctionChange, names: Names) -> Grid:
    is_known = any(each.difference_executed is not None for each in change.decisions)
    rows: list[Row] = []
    shown = [each for each in change.decisions if each.answers not in _WITHOUT_EFFECT]
    for each in shown:
        difference = each.difference_bytes
        code = Cell(f"{difference:+,}" if difference else "0", difference)
        if not each.shown.site.calls:
            code = Cell("unknown", -math.inf)
        counts = [_executed(each)] if is_known else []
        rows.append([_call(each.shown.site), *_answers(each), code, *counts])
    if rest := len(change.decisions) - len(shown):
        what = f"{rest} that one left and the other was not asked about"
        rows.append([what, *[""] * (len(names) + 1 + is_known)])
    rows.append([_AROUND, *[""] * len(names), _difference(change.around_bytes), *[""] * is_known])
    counted = ["executed"] if is_known else []
    heading = f"in {source_name(change.function)}"
    return Grid((heading, *names, "code of it", *counted), rows, folds=True)


def _executed(change: FunctionChange | OtherDecision) -> Cell:
    """How many more instructions are executed, in millions."""
    difference = change.difference_executed
    if difference is None:
        return Cell("unknown", -math.inf)
    return Cell(f"{difference / 1e6:+,.2f} M" if difference else "0", difference)


def _answers(decision: OtherDecision) -> list[str]:
    return [_ANSWERS.get(answer, str(answer)) for answer in decision.answers]


def _call(site: Site) -> str:
    """The callee and its place: a call in the caller itself has a number alone."""
    places = [
        call.place
        if call.line
        else f"call {call.number}"
        if call.function == site.caller
        else f"call {call.number} of {source_name(call.function)}"
        for call in site.calls
    ]
    return f"{source_name(site.callee)} at {' @ '.join(places) or 'a merged call'}"


def _module_record(change: ModuleChange) -> dict[str, Any]:
    return {
        "package": change.key.package,
        "module": change.key.name,
        "text_bytes": list(change.text_bytes),
        "around_bytes": change.around_bytes,
        "first": change.first and _decision_record(change.first),
        "functions": [
            {
                "function": each.function,
                "bytes": [each.before_bytes, each.after_bytes],
                "executed": list(each.executed),
                "decisions": [_decision_record(other) for other in each.decisions],
            }
            for each in change.functions
        ],
    }


def _decision_record(other: OtherDecision) -> dict[str, Any]:
    sizes = [each and each.size_bytes for each in (other.before, other.after)]
    return {
        "site": asdict(other.shown.site),
        "asked_before": other.shown.before,
        "answers": list(other.answers),
        "bytes": sizes,
        "cost_bytes": other.cost_bytes,
        "executed": [each and each.executed for each in (other.before, other.after)],
    }


def function_anchor(key: ModuleKey, function: str) -> str:
    """Return the anchor of a function's IR on a page."""
    return f"ir/{key.package}/{key.name}/{function}"


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
        for number in range(line - _LINES_AROUND, line + _LINES_AROUND + 1)
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

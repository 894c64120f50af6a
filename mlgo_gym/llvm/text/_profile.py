"""The profile that a module carries, as LLVM's ``ProfileSummaryInfo`` sees it.

Clang's front end attaches a profile (``-fprofile-instr-use``) before optimisation. A profile of
instrumented IR or of samples (``-fprofile-use``, ``-fprofile-sample-use``) is attached by the
first passes of the pipeline: bitcode from before it has none, and only the command line names it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final

from mlgo_gym.llvm.text._module_text import ATTRIBUTE_GROUP, ModuleText

HOT_CUTOFF: Final = 990_000
"""Millionths of all counts, ``-profile-summary-cutoff-hot`` (``ProfileSummaryBuilder.cpp``)."""

COLD_CUTOFF: Final = 999_999
"""Millionths of all counts, ``-profile-summary-cutoff-cold`` (``ProfileSummaryBuilder.cpp``)."""

_SUMMARY_FLAG: Final = re.compile(r'!\{i32 \d+, !"(?:CS)?ProfileSummary", !(\d+)\}')
_FORMAT: Final = re.compile(r'!\{!"ProfileFormat", !"(\w+)"\}')
_DETAILS: Final = re.compile(r'!\{!"DetailedSummary", !(\d+)\}')
_ENTRY: Final = re.compile(r"!\{i32 (\d+), i64 (-?\d+), i32 \d+\}")
_ROW: Final = re.compile(r"!\{i32 (\d+), i64 (-?\d+), i32 (\d+)\}")
_TOTAL: Final = re.compile(r'!\{!"(\w+)", i64 (\d+)\}')
_ENTRY_COUNT: Final = re.compile(r'!\{!"function_entry_count", i64 (-?\d+)')
_PROF: Final = re.compile(r" !prof !(\d+)")
_NODE: Final = re.compile(r"!(\d+)")
_COUNT_BITS: Final = 1 << 64


@dataclass(frozen=True, slots=True)
class Profile:
    """The counts of a module's functions; those with the attribute ``cold`` count as cold.

    The kind is ``InstrProf``, ``CSInstrProf`` or ``SampleProfile``, ``None`` without a profile.
    """

    kind: str | None
    functions_with_counts: int
    hot_functions: int
    cold_functions: int


def profile_of(module: ModuleText) -> Profile:
    """The profile of a module."""
    summary = _summary(module)
    kind = _FORMAT.search(summary)
    thresholds = _thresholds(module, summary)
    counted = hot = cold = 0
    for function in module.functions.values():
        count = entry_count(module, function.header)
        counted += count is not None
        if count is not None and thresholds and count >= thresholds[0]:
            hot += 1
        elif _is_marked_cold(module, function.header) or (
            count is not None and thresholds and count <= thresholds[1]
        ):
            cold += 1
    return Profile(kind[1] if kind else None, counted, hot, cold)


def summary_of(module: ModuleText) -> dict[str, Any]:
    """The numbers of a profile's summary by LLVM's names; ``DetailedSummary`` has three each."""
    text = _summary(module)
    numbers: dict[str, Any] = {name: int(number) for name, number in _TOTAL.findall(text)}
    if details := _DETAILS.search(text):
        rows = _ROW.findall(_resolved(module, details[1]))
        numbers["DetailedSummary"] = [[int(each) % _COUNT_BITS for each in row] for row in rows]
    return numbers


def _summary(module: ModuleText) -> str:
    """The nodes of the profile's summary, or empty; of two LLVM takes the context-sensitive one."""
    flags = [line for line in module.metadata.values() if _SUMMARY_FLAG.search(line)]
    flags.sort(key=lambda line: '"CSProfileSummary"' not in line)
    match = _SUMMARY_FLAG.search(flags[0]) if flags else None
    return _resolved(module, match[1]) if match else ""


def _resolved(module: ModuleText, node: str) -> str:
    fields = _NODE.findall(module.metadata[node].partition(" = ")[2])
    return "\n".join(module.metadata[field] for field in fields)


def _thresholds(module: ModuleText, summary: str) -> tuple[int, int] | None:
    """The least count that is hot, and the greatest that is cold."""
    details = _DETAILS.search(summary)
    if details is None:
        return None
    entries = _ENTRY.findall(_resolved(module, details[1]))
    counts = sorted((int(cutoff), int(count) % _COUNT_BITS) for cutoff, count in entries)
    hot = next((count for cutoff, count in counts if cutoff >= HOT_CUTOFF), None)
    cold = next((count for cutoff, count in counts if cutoff >= COLD_CUTOFF), None)
    return None if hot is None or cold is None else (hot, cold)


def entry_count(module: ModuleText, header: str) -> int | None:
    """How often a function is entered, if its header says so."""
    node = _PROF.search(header)
    match = _ENTRY_COUNT.search(module.metadata[node[1]]) if node else None
    if match is None:
        return None
    count = int(match[1]) % _COUNT_BITS
    # All ones stands for no count (llvm/lib/IR/Function.cpp, getEntryCount).
    return None if count == _COUNT_BITS - 1 else count


def _is_marked_cold(module: ModuleText, header: str) -> bool:
    groups = (module.attribute_groups.get(name, "") for name in ATTRIBUTE_GROUP.findall(header))
    return any("cold" in text.split() for text in groups)

"""Features of a call that LLVM does not send, but that are read from its memory.

This is their only list. `mlgo_gym.problems` makes features of it, and `mlgo_gym.llvm.inside` the
code that reads them. Worker processes import this module, so it must not import numpy.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

MOST_SHARE: Final = 320
"""The log share of all counts."""
SHARE_STEPS: Final = 8
"""How much less the log share of half of them is."""
NO_CUTOFF: Final = 1_000_000
"""The cutoff of a count that reaches none, or that is not known."""

_Features = Mapping[str, tuple[str, str]]

_DERIVED: Final[_Features] = {
    "callee_is_local": ("flag", "the callee is internal or private to its module"),
    "callee_is_shared": (
        "flag",
        "the callee is linkonce or weak: other objects may have it, and a linker keeps one",
    ),
    "callee_is_hidden": ("flag", "the callee's visibility is hidden"),
    "callee_call_sites": ("count", "calls and invokes of the callee in the module at this moment"),
    "callee_callers": ("count", "functions that have such calls; at most 64 are told apart"),
    "callee_other_uses": ("count", "uses of the callee other than calls: its address is taken"),
    "callee_instruction_count": ("count", "instructions of the callee"),
    "caller_instruction_count": ("count", "instructions of the caller"),
}
_HOTNESS: Final[_Features] = {
    "call_is_counted": ("flag", "the caller has counts, and the module their summary"),
    "callee_is_counted": ("flag", "likewise the callee"),
    "caller_entry_share": ("log share", "how often the caller is entered"),
    "callee_entry_share": ("log share", "how often the callee is entered"),
    "call_share": ("log share", "how often the call is reached"),
    "call_cutoff": (
        "millionths of all counts",
        (
            "the first cutoff of the profile's summary that the call's count reaches; 1,000,000 "
            "for none, or where it is not known"
        ),
    ),
    "call_is_hot": ("flag", "the call's count is hot by the summary"),
    "call_is_cold": ("flag", "the call's count is cold by the summary"),
}
CALL_FEATURES: Final[Mapping[str, _Features]] = {"derived": _DERIVED, "hotness": _HOTNESS}
"""The unit and meaning of each feature by its name, by the setting that adds it, in their order.

Each is an `int64_t`. A log share is 0 for what is never executed. Otherwise it is `SHARE_STEPS`
times the binary logarithm of the share of all counts of the profile, plus `MOST_SHARE`, rounded
down, and at least 1.
"""

"""What the values of options are: argparse's types, by what help calls the values."""

from __future__ import annotations

import argparse
import contextlib
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from corpus_tools.command_line import whole

_UNITS_S: Final = {"h": 3600.0, "m": 60.0, "s": 1.0}
_DURATION: Final = re.compile("".join(rf"(?:([0-9]+(?:\.[0-9]+)?){unit})?" for unit in _UNITS_S))


def duration(text: str) -> float:
    """An argparse type: a time with its units, in seconds.

    >>> duration("1h30m"), duration("2.5s")
    (5400.0, 2.5)
    """
    found = _DURATION.fullmatch(text)
    numbers = zip(found.groups(default="0"), _UNITS_S.values(), strict=True) if found else ()
    if seconds := sum(float(number) * unit_s for number, unit_s in numbers):
        return seconds
    raise argparse.ArgumentTypeError(
        f"expected a time above 0 with its unit, such as 90s, 30m or 1h30m, found {text!r}"
    )


def above_zero(text: str) -> float:
    """An argparse type: numbers above 0, ``inf`` included."""
    with contextlib.suppress(ValueError):
        if (value := float(text)) > 0:
            return value
    raise argparse.ArgumentTypeError(f"expected a number above 0, found {text!r}")


TYPES: Final[Mapping[str, Callable[[str], Any]]] = MappingProxyType(
    {
        **dict.fromkeys(("DIR", "FILE", "IN", "OUT", "BUILD_A", "BUILD_B"), Path),
        "N": whole(1),
        "TIME": duration,
        "NUMBER": above_zero,
        "F": float,
        "T": float,
    }
)
"""What the values are that help calls so; others are text."""

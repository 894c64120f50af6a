"""Types of options' values for argparse, by their names in the help."""

from __future__ import annotations

import argparse
import contextlib
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from corpus_tools.command_line import whole
from mlgo_gym.base import OptionsError, file_place, is_remote, place_of

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


def path(text: str) -> Path:
    """An argparse type: a file or folder here.

    >>> path("runs/a"), path("file:///srv/runs/a")
    (PosixPath('runs/a'), PosixPath('/srv/runs/a'))
    """
    found = place(text)
    if isinstance(found, str):
        raise argparse.ArgumentTypeError(f"expected a path on this machine, found {text!r}")
    return found


def place(text: str) -> Path | str:
    """An argparse type: a folder here, or the URI of one elsewhere."""
    return _place(text, place_of)


def file_or_uri(text: str) -> Path | str:
    """An argparse type: a file here, or the URI of one elsewhere, also on the web."""
    return _place(text, file_place)


def _place(text: str, parse: Callable[[str], Path | str]) -> Path | str:
    try:
        return parse(text)
    except OptionsError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def model(text: str) -> str:
    """An argparse type: a model as `find_model` finds it; a URI is for `fetch_models`."""
    from mlgo_gym.model import find_model

    return text if is_remote(text) else find_model(text)


def fetch_models(options: argparse.Namespace) -> None:
    """Have the models of ``--model`` that URIs name here."""
    from mlgo_gym.model import find_model

    given = getattr(options, "model", None)
    if isinstance(given, list):
        options.model = [find_model(each) if is_remote(each) else each for each in given]
    elif isinstance(given, str) and is_remote(given):
        options.model = find_model(given)


TYPES: Final[Mapping[str, Callable[[str], Any]]] = MappingProxyType(
    {
        **dict.fromkeys(("DIR", "FILE", "IN", "OUT", "BUILD_A", "BUILD_B"), path),
        "N": whole(1),
        "TIME": duration,
        "NUMBER": above_zero,
        "F": float,
        "T": float,
    }
)
"""Values by what help calls them; others are text, and a test says which ours may be."""

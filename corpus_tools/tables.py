"""Tables of TOML: what their keys must be, and what is said where they are not.

>>> check_values({"count": 0}, {"count": Field("a whole number of at least 1", is_count)}, "a.toml",
...     ValueError)
Traceback (most recent call last):
ValueError: a.toml: key 'count': expected a whole number of at least 1, found 0
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields
from typing import Any, Final, NamedTuple, cast

from corpus_tools.manifest import name_problem
from corpus_tools.reading import brief

MOST_DOTS: Final = 256
_QUOTED: Final = re.compile(r"""\"(?:[^"\\]|\\.)*\"|\\.|'[^']*'|#.*""")
"""A string in one line, a comment, or an escape behind a quote that is not closed."""

Fail = Callable[[str], Exception]


class Field(NamedTuple):
    """The requirements on one key.

    Attributes:
        expected: in words, for the error.
        accepts: whether a value will do.
    """

    expected: str
    accepts: Callable[[object], bool]


def matches(pattern: str) -> Callable[[object], bool]:
    """Whether a value is text that a pattern matches whole."""
    compiled = re.compile(pattern)
    return lambda value: isinstance(value, str) and compiled.fullmatch(value) is not None


def is_strings(value: object) -> bool:
    """Whether a value is a list of strings."""
    return isinstance(value, (list, tuple)) and all(isinstance(item, str) for item in value)


def is_names(value: object) -> bool:
    """Whether a value is a list of names, or patterns, that lead out of no folder."""
    return is_strings(value) and not any(map(name_problem, cast("list[str]", value)))


def is_count(value: object) -> bool:
    """Whether a value is a whole number above 0."""
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


TEXT: Final = Field("a non-empty string", lambda value: isinstance(value, str) and value != "")


def read_table(data: bytes, where: str, fail: Fail) -> dict[str, Any]:
    """The table that bytes hold; what is no TOML is raised as what ``fail`` makes of words.

    Lines have at most `MOST_DOTS` dots outside of strings: `tomllib` needs time that grows with the
    square of a key's parts.
    """
    try:
        text = data.decode()
        for number, line in enumerate(text.splitlines(), 1):
            if (found := _QUOTED.sub("", line).count(".")) > MOST_DOTS:
                expected = f"expected at most {MOST_DOTS} dots, found {found}"
                raise fail(f"{where}: line {number}: {expected}")
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise fail(f"{where}: expected TOML, found {error}") from error


def check_table(
    table: Mapping[str, object], known: Mapping[str, Field], kind: type, where: str, fail: Fail
) -> None:
    """See that all keys are known and all values what they must be, for a dataclass.

    Those keys must be there for which it has no default.
    """
    needed = {each.name for each in fields(kind) if each.default is MISSING}
    for key in table:
        if key not in known:
            raise _malformed(where, key, f"one of {', '.join(known)}", "an unknown key", fail)
    for key, field in known.items():
        if key in needed and key not in table:
            raise _malformed(where, key, field.expected, "no such key", fail)
    check_values(table, known, where, fail)


def check_values(
    table: Mapping[str, object], known: Mapping[str, Field], where: str, fail: Fail
) -> None:
    """See that all values are what they must be."""
    for key, value in table.items():
        if not known[key].accepts(value):
            raise _malformed(where, key, known[key].expected, brief(value), fail)


def _malformed(where: str, key: str, expected: str, found: str, fail: Fail) -> Exception:
    return fail(f"{where}: key {key!r}: expected {expected}, found {found}")

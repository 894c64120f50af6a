"""Many values of a kind as columns, which are pickled and made again for a part of what they cost.

A column is a tuple of what it is, what belongs to that, and what is in it::

    ("each", None, values)      values as they are
    ("same", count, value)      one that cannot be changed, so many times
    ("tuple", None, columns)    tuples of one length, by their places
    ("dict", keys, columns)     dicts of the same keys, by these
    ("made", class, columns)    named tuples and frozen dataclasses, by their fields

Objects are pickled one by one, most of them by functions in Python; columns are a few lists. What
is read is equal to what was given, and of the same types.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import fields
from functools import cache
from itertools import repeat
from typing import Any, Final

Column = tuple[str, Any, Any]

_SINGLE: Final = frozenset({str, bytes, int, bool, type(None)})
"""Kinds of which equal values are the same; of floats 0.0 and -0.0 are not."""


def column(values: Sequence[Any]) -> Column:
    """Values, of whatever kinds, to be pickled.

    >>> column([("a", 1), ("b", 1)])
    ('tuple', None, [('each', None, ('a', 'b')), ('same', 2, 1)])
    """
    if len(values) < 2:
        return "each", None, values
    first = values[0]
    kind: Any = type(first)
    if any(type(each) is not kind for each in values):
        return "each", None, values
    if kind in _SINGLE:
        is_same = all(each == first for each in values)
        return ("same", len(values), first) if is_same else ("each", None, values)
    if not (found := _parts(kind, values)):
        return "each", None, values
    is_same = found[0] != "dict" and all(each[0] == "same" for each in found[2])
    return ("same", len(values), first) if is_same else found


def _parts(kind: Any, values: Sequence[Any]) -> Column | None:
    """Values of a kind by their parts, where all have the same."""
    if kind is dict:
        keys = tuple(values[0])
        is_alike = set(map(type, keys)) == {str} and all(tuple(each) == keys for each in values)
        return ("dict", keys, _columns(map(dict.values, values))) if is_alike else None
    if kind is tuple:
        is_alike = len(set(map(len, values))) == 1
        return ("tuple", None, _columns(values)) if is_alike else None
    if not (names := _fields(kind)):
        return None
    return "made", kind, [column([getattr(each, name) for each in values]) for name in names]


def _columns(rows: Any) -> list[Column]:
    return [column(each) for each in zip(*rows, strict=True)]


@cache
def _fields(kind: Any) -> tuple[str, ...]:
    """Return the fields that a class's values are pickled by, if they are."""
    if kind.__bases__ == (tuple,):
        return getattr(kind, "_fields", ())
    parameters = vars(kind).get("__dataclass_params__")  # of its own
    if parameters is None or not parameters.frozen:
        return ()
    is_plain = (kind.__reduce_ex__, kind.__reduce__) == (object.__reduce_ex__, object.__reduce__)
    state: Any = kind.__getstate__
    is_plain &= "object" in state.__qualname__ or state.__module__ == "dataclasses"
    return tuple(each.name for each in fields(kind)) if is_plain else ()


def values_of(given: Column) -> Sequence[Any]:
    """The values that a column was made of.

    >>> values_of(column([("a", 1), ("b", 1)]))
    [('a', 1), ('b', 1)]
    """
    what, about, found = given
    if what == "each":
        return found  # type: ignore[no-any-return]
    if what == "same":
        return [found] * about
    if what == "made":
        return _made(about, list(map(values_of, found)))
    rows = zip(*map(values_of, found), strict=True)
    return list(rows) if what == "tuple" else [dict(zip(about, each, strict=True)) for each in rows]


def _made(kind: Any, columns: Sequence[Sequence[Any]]) -> list[Any]:
    """Make objects as unpickling does, without ``__init__``, but field by field."""
    if issubclass(kind, tuple):
        return list(map(kind._make, zip(*columns, strict=True)))
    made = list(map(object.__new__, repeat(kind, len(columns[0]))))
    for name, values in zip(_fields(kind), columns, strict=True):
        deque(map(object.__setattr__, made, repeat(name), values), maxlen=0)
    return made

"""Items that are not known before values of others are."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import Final, TypeVar

_Item = TypeVar("_Item")


class Later(Enum):
    """What an iterator of items says in place of one that depends on values yet to come.

    It is asked again when another value was taken, and says so only while there are some to come.

    >>> from mlgo_gym.llvm import Compiler, each
    >>> found = []
    >>> def items():
    ...     yield 1
    ...     while not found:
    ...         yield LATER
    ...     yield found[0]
    >>> for done in each(items(), lambda compiler, item: item + 1, Compiler):
    ...     found.append(done.value)
    >>> found
    [2, 3]
    """

    LATER = "later"


LATER: Final = Later.LATER
"""The one value of `Later`."""

Items = Iterable[_Item | Later]
"""Items, among which `LATER` may be."""

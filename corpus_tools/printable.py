"""Names may be anybody's: what a terminal, a page or a log would obey is spelled out."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable
from typing import Final

_MOST_LISTED: Final = 160
_FEW: Final = 3


def printable(text: str, unchanged: str = "") -> str:
    r"""Text whose control characters, and those that turn or hide letters, are Python's escapes.

    Args:
        text: the text.
        unchanged: characters that stay although they are not printed, such as newlines.

    >>> print(printable("a\x1b[31mb\u202ec\n"))
    a\x1b[31mb\u202ec\n
    """
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() or each in unchanged else ascii(each)[1:-1] for each in text
    )


def listed(known: Collection[str], found: object) -> str:
    """The names that there are, for a message; of many those alone that are like what was found.

    Args:
        known: the names.
        found: what is none of them.

    >>> listed(["lua", "jq"], "luaa")
    'lua, jq'
    >>> listed([f"package-{each:02}" for each in range(40)], "pakage-17").partition(",")[0]
    'package-17'
    >>> listed([f"package-{each:02}" for each in range(40)], "x")
    'package-00, package-01, package-02 and 37 more'
    """
    text = ", ".join(known)
    if len(text) <= _MOST_LISTED:
        return text
    some = difflib.get_close_matches(str(found), known, _FEW) or [*known][:_FEW]
    return f"{', '.join(some)} and {len(known) - len(some)} more"


def first_of(texts: Iterable[str]) -> str:
    """The first of several texts, and how many others there are; of none, nothing.

    >>> first_of(["a.o: refused", "b.o: refused", "c.o: refused"])
    'a.o: refused; and 2 more'
    """
    first, *rest = (*texts,) or ("",)
    return f"{first}; and {len(rest)} more" if rest else first

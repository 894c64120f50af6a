"""Names may be anybody's: what a terminal, a page or a log would obey is spelled out."""

from __future__ import annotations

__all__ = ["printable"]


def printable(text: str, keep: str = "") -> str:
    r"""Text whose control characters, and those that turn or hide letters, are Python's escapes.

    Args:
        text: the text.
        keep: characters that stay although they are not printed, such as newlines.

    >>> print(printable("a\x1b[31mb\u202ec\n"))
    a\x1b[31mb\u202ec\n
    """
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() or each in keep else ascii(each)[1:-1] for each in text
    )

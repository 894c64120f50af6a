"""Splitting a command into its words as `shlex.split` does, in time that grows with its length.

That of `shlex` grows with the square of the longest word: a file of one word of 2 MB took minutes.
"""

from __future__ import annotations

import re
from typing import Final

_PIECE: Final = re.compile(
    r"""[ \t\r\n]+ | ([^ \t\r\n'"\\]+) | \\(.) | '([^']*)' | "([^"\\]*(?:\\.[^"\\]*)*)" | (.)""",
    re.DOTALL | re.VERBOSE,
)
_DOUBLE, _OPEN = 4, 5
_ESCAPE: Final = re.compile(r'\\(["\\])')


def split_words(text: str) -> list[str]:
    r"""Split by the shell's rules for quotes and backslashes.

    >>> split_words(r'cc -DA="b c" d\ e')
    ['cc', '-DA=b c', 'd e']

    Raises:
        ValueError: a quote is open, or nothing follows a backslash.
    """
    words: list[str] = []
    pieces: list[str] | None = None
    for match in _PIECE.finditer(text):
        kind = match.lastindex
        if kind is None:
            words += [] if pieces is None else ["".join(pieces)]
            pieces = None
            continue
        piece = match[kind]
        if kind == _OPEN:
            raise ValueError("No escaped character" if piece == "\\" else "No closing quotation")
        pieces = [] if pieces is None else pieces
        pieces.append(_ESCAPE.sub(r"\1", piece) if kind == _DOUBLE else piece)
    return words if pieces is None else [*words, "".join(pieces)]

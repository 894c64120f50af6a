"""How options are spelled, and which of a list an argument is.

``-x`` stands alone, ``-x=*`` has its value in the same argument, ``-x VALUE`` in the next. The
longest spelling that fits counts.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Argument:
    """An option as it was found, with its value.

    Attributes:
        spelling: the one of the list; ``None`` where none fits.
        value: what it was given; of what is not listed, all of it.
        words: the arguments of the command that it stands in.
    """

    spelling: str | None
    value: str
    words: tuple[str, ...]


class Spellings:
    """A list of options.

    >>> options = Spellings(["-O*", "-I VALUE", "-pipe"])
    >>> [each.spelling for each in options.read(["-O2", "-I", "-pipe", "-piper", "a.c"])]
    ['-O*', '-I VALUE', None, None]
    """

    def __init__(self, options: Iterable[str]) -> None:
        options = tuple(options)
        joined = sorted((each for each in options if each.endswith("*")), key=len, reverse=True)
        self._joined = re.compile("|".join(re.escape(each[:-1]) for each in joined) or "(?!)")
        self._exact = {each.partition(" ")[0]: each for each in options if not each.endswith("*")}

    def read(self, arguments: Sequence[str]) -> Iterator[Argument]:
        """The arguments, each with its value."""
        rest = iter(arguments)
        for argument in rest:
            spelling = self._exact.get(argument)
            if spelling is not None and spelling.endswith(" VALUE"):
                value = tuple(each for each in (next(rest, None),) if each is not None)
                yield Argument(spelling, "".join(value), (argument, *value))
            elif spelling is not None:
                yield Argument(spelling, "", (argument,))
            else:
                yield self._with_value(argument)

    def _with_value(self, argument: str) -> Argument:
        if found := self._joined.match(argument):
            return Argument(f"{found[0]}*", argument[found.end() :], (argument,))
        return Argument(None, argument, (argument,))

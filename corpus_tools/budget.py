"""Limits on all that one input costs, whatever it is made of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final


class Budget:
    """Limits on the sums of what an input has: bytes, files, tables.

    Whoever reads the input charges each part before it makes or repeats something for it, so that
    many small parts cost no more than one large part may.

    Args:
        fail: makes the error of what is too much.
        **most: the limits, by the names of what they limit; a space in one is an underscore.

    >>> budget = Budget(ValueError, bytes=10, files=2)
    >>> budget.charge(bytes=6, files=1)
    >>> budget.charge(bytes=6)
    Traceback (most recent call last):
    ValueError: expected at most 10 bytes in all, found more
    """

    def __init__(self, fail: Callable[[str], Exception] = ValueError, /, **most: int) -> None:
        self._fail: Final = fail
        self._most: Final = most
        self._left: Final = dict(most)

    def charge(self, **amounts: int) -> None:
        """Take what a part costs off what is left.

        Args:
            **amounts: by the names of what is limited; one below 0 takes nothing.

        Raises:
            Exception: the budget's error: there is less left.
        """
        if problem := self.problem(**amounts):
            raise self._fail(problem)

    def problem(self, **amounts: int) -> str | None:
        """Take what a part costs, and return the error's text where less is left; see `charge`.

        >>> Budget(bytes=10).problem(bytes=11)
        'expected at most 10 bytes in all, found more'
        """
        for name, amount in amounts.items():
            self._left[name] -= max(0, amount)
            if self._left[name] < 0:
                limit = f"expected at most {self._most[name]} {name.replace('_', ' ')} in all"
                return f"{limit}, found more"
        return None

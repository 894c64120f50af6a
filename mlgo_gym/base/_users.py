"""Things that several owners use, and that go with the last of them."""

from __future__ import annotations

import threading


class Users:
    """The number of those who use something; one at first, unless told otherwise.

    >>> users = Users()
    >>> users.add()
    >>> users.leave(), users.leave()
    (False, True)
    """

    def __init__(self, count: int = 1) -> None:
        self._alone = threading.Lock()
        self._count = count

    def add(self) -> None:
        """Count one more, who leaves as well."""
        with self._alone:
            self._count += 1

    def leave(self) -> bool:
        """Count one less, and say whether that was the last."""
        with self._alone:
            self._count -= 1
            return self._count == 0

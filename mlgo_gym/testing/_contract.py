"""The parts that all suites share: the error of a broken clause, and clauses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

_MOST_CHARACTERS: Final = 100


class ContractError(AssertionError):
    """A contract is broken; the message says which clause, what was expected and what was found.

    >>> raise ContractError("close, twice: expected no error, found OSError")
    Traceback (most recent call last):
      ...
    mlgo_gym.testing._contract.ContractError: close, twice: expected no error, found OSError
    """


def expect(clause: str, expected: object, found: object) -> None:
    """See that what was found is what a clause says.

    Raises:
        ContractError: it is something else.
    """
    if expected != found:
        raise ContractError(f"{clause}: expected {_shown(expected)}, found {_shown(found)}")


def expect_error(
    clause: str, kind: type[Exception], call: Callable[[], object], says: str = ""
) -> None:
    """See that a call raises an error of a kind, and that its message says something.

    Raises:
        ContractError: it raises none, or another.
    """
    try:
        call()
    except kind as error:
        if says not in str(error):
            raise ContractError(
                f"{clause}: expected a message with {says!r}, found {_shown(str(error))}"
            ) from error
    except Exception as error:
        raise ContractError(
            f"{clause}: expected {kind.__name__}, found {described(error)}"
        ) from error
    else:
        raise ContractError(f"{clause}: expected {kind.__name__}, found none")


def described(error: Exception) -> str:
    """An error as messages name it, in one line."""
    return f"{type(error).__name__}: {_clipped(' '.join(str(error).split()))}"


def _shown(value: object) -> str:
    return _clipped(repr(value))


def _clipped(text: str) -> str:
    return text if len(text) <= _MOST_CHARACTERS else f"{text[: _MOST_CHARACTERS - 3]}..."

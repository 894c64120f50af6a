"""A recorded ``clang -cc1`` command, read by the table of `llvm.command._cc1_table`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from mlgo_gym.errors import OptionsError
from mlgo_gym.llvm.command._cc1_table import LISTED_OPTION, PROFILE_OPTIONS, TABLE, Effect, Row

_ALONE: Final = {row.name: row for row in TABLE if not row.is_joined and not row.is_separate}
_SEPARATE: Final = {row.name: row for row in TABLE if row.is_separate}
_JOINED: Final = sorted(
    (row for row in TABLE if row.is_joined), key=lambda row: len(row.name), reverse=True
)


@dataclass(frozen=True, slots=True)
class Argument:
    """One option of a command, and its row of the table; without one, its name goes up to ``=``."""

    name: str
    value: str
    row: Row | None

    @property
    def effect(self) -> Effect:
        """How it takes effect; unknown options count as not honoured."""
        return self.row.effect if self.row else Effect.NOT_HONOURED


def read_arguments(command: Sequence[str]) -> Iterator[Argument]:
    """The options of a command, in its order.

    Arguments that follow an unknown option and do not look like options are its values.

    >>> [(each.name, each.value) for each in read_arguments(["-cc1", "-Oz", "-target-cpu", "z13"])]
    [('-O', 'z'), ('-target-cpu', 'z13')]
    """
    if not command or command[0] != "-cc1":
        found = command[0] if command else "nothing"
        raise OptionsError(f"command line: expected -cc1 first, found {found!r}")
    rest = iter(command[1:])
    for text in rest:
        if text.startswith(LISTED_OPTION):
            items = text.removeprefix(LISTED_OPTION).split(",")
            yield from (_argument(f"{LISTED_OPTION}{item}") for item in items)
        elif text in _SEPARATE:
            yield Argument(text, next(rest, ""), _SEPARATE[text])
        elif text.startswith("-"):
            yield _argument(text)


def not_honoured(arguments: Sequence[Argument], *, has_profile: bool = False) -> tuple[str, ...]:
    """What the embedded compiler leaves out: option and consequence, each once, in order."""
    carried = PROFILE_OPTIONS if has_profile else ()
    lacking = (each for each in arguments if each.effect is Effect.NOT_HONOURED)
    return tuple(dict.fromkeys(_described(each) for each in lacking if each.name not in carried))


def _argument(text: str) -> Argument:
    if row := _ALONE.get(text):
        return Argument(text, "", row)
    for row in _JOINED:
        if text.startswith(row.name):
            return Argument(row.name, text.removeprefix(row.name), row)
    name, equals, value = text.partition("=")
    return Argument(name + equals, value, None)


def _described(argument: Argument) -> str:
    # A value that is a path differs from module to module; what is missing is the same.
    value = argument.value if argument.name == LISTED_OPTION else ""
    note = argument.row.note if argument.row else "not known to mlgo_gym"
    return f"{argument.name}{value}: {note}"

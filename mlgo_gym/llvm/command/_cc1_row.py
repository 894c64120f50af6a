"""What a row of the table of ``clang -cc1``'s options says; see `llvm.command._cc1_table`."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from mlgo_gym.errors import InternalError


class Effect(StrEnum):
    """How an option takes effect when a module is compiled from its bitcode."""

    BITCODE = "in the bitcode"
    COMPILER = "honoured"
    OTHER = "not code"
    NOT_HONOURED = "not honoured"
    FRONT_END = "front end"


@dataclass(frozen=True, slots=True)
class Row:
    """One option, or all that start alike.

    Attributes:
        option: how it is spelled; see this module.
        effect: how it takes effect.
        note: where it stands, what honours it, or what is missing.
    """

    option: str
    effect: Effect
    note: str

    def __post_init__(self) -> None:
        if not self.option.startswith("-"):
            raise InternalError(f"table of -cc1 options: expected a dash, found {self.option!r}")

    @property
    def name(self) -> str:
        """What an argument is or starts with."""
        return self.option.partition(" ")[0].removesuffix("*")

    @property
    def is_joined(self) -> bool:
        """Whether the value follows in the same argument."""
        return self.option.endswith("*")

    @property
    def is_separate(self) -> bool:
        """Whether the value is the next argument."""
        return " " in self.option


def rows(effect: Effect, note: str, *options: str) -> tuple[Row, ...]:
    """Rows of options with commas between them."""
    return tuple(Row(option, effect, note) for option in ", ".join(options).split(", "))

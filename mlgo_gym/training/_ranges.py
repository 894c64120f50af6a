"""Settings whose numbers have ranges, which are looked at when they are made."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Any, Final, TypeAlias, get_args, get_origin, get_type_hints

from mlgo_gym.base import OptionsError

_MOST_SEED: Final = (1 << 32) - 1


@dataclass(frozen=True, slots=True)
class Range:
    """Finite numbers from ``least`` on, or above ``above``, up to ``most``."""

    least: float = -math.inf
    most: float = math.inf
    above: float = -math.inf

    def __contains__(self, value: float) -> bool:
        return math.isfinite(value) and self.above < value and self.least <= value <= self.most

    def __str__(self) -> str:
        if self.above > -math.inf:
            end = f" and up to {self.most:,}" if self.most < math.inf else ""
            return f"above {self.above:g}{end}"
        if self.most < math.inf:
            return f"from {self.least:,} to {self.most:,}"
        return f"of at least {self.least:,}"


Seed: TypeAlias = Annotated[int, Range(0, _MOST_SEED)]
Count: TypeAlias = Annotated[int, Range(1, 1 << 31)]
Whole: TypeAlias = Annotated[int, Range(0, 1 << 31)]
Cost: TypeAlias = Annotated[int, Range(-(1 << 31), 1 << 31)]
Positive: TypeAlias = Annotated[float, Range(above=0)]
NotNegative: TypeAlias = Annotated[float, Range(0)]
Share: TypeAlias = Annotated[float, Range(above=0, most=1)]
Part: TypeAlias = Annotated[float, Range(0, 1)]
Width: TypeAlias = Annotated[int, Range(1, 4096)]
Widths: TypeAlias = tuple[Width, ...]
Band: TypeAlias = tuple[Cost, Cost]


class Ranged:
    """A dataclass whose fields are looked at by their annotations.

    A field of type ``Annotated[int, Range(1)]`` has a number in that range, one of type
    ``tuple[Annotated[int, Range(1)], ...]`` several.

    Raises:
        OptionsError: a number is out of range, or something is of another type.
    """

    def __post_init__(self) -> None:
        for name, hint in get_type_hints(type(self), include_extras=True).items():
            _check(getattr(self, name), hint, name)


def _check(value: Any, hint: Any, name: str) -> None:
    if get_origin(hint) is Annotated:
        kind, *ranges = get_args(hint)
        for each in ranges:
            if isinstance(each, Range) and not (_is_number(value, kind) and value in each):
                what = "a whole number" if kind is int else "a number"
                raise OptionsError(f"{name}: expected {what} {each}, found {value!r}")
    elif get_origin(hint) is tuple:
        parts = get_args(hint)
        if parts[-1:] == (...,):
            parts = parts[:1] * len(value)
        if len(value) != len(parts):
            raise OptionsError(f"{name}: expected {len(parts)} values, found {value!r}")
        for each, part in zip(value, parts, strict=True):
            _check(each, part, name)
    elif isinstance(hint, type) and not isinstance(value, hint):
        raise OptionsError(f"{name}: expected a value of type {hint.__name__}, found {value!r}")


def _is_number(value: Any, kind: type) -> bool:
    kinds = (int,) if kind is int else (int, float)
    return isinstance(value, kinds) and not isinstance(value, bool)

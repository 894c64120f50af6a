"""The rule of headers: what a problem needs of what an LLVM says that it sends.

LLVM's MLGO page promises that features come and go. So each that a problem documents must be there
and of its type and shape, wherever in the order it stands; what is sent besides harms nobody and is
kept. Of features that are as wide as LLVM likes, such as eviction's positions, all have one width.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, Generic, TypeVar

import numpy as np

from mlgo_gym.base import TensorSpec

_T = TypeVar("_T")
_LEAST_WIDTH: Final = 2


@dataclass(frozen=True, slots=True)
class Feature:
    """One input that LLVM offers.

    Attributes:
        spec: its name, type and shape.
        meaning: what LLVM puts there.
        unit: what it is counted in.
        low: no value is below it.
        high: no value is above it, but infinity and NaN may be sent where `may_be_infinite`.
        may_be_infinite: LLVM sends infinity or NaN for some.
        is_wide: its last dimension is as long as the header says, and as that of the others.
        is_derived: it is no feature of LLVM's, but read from its module where it asks.

    >>> spec = TensorSpec("callee_users", "int64_t", (1,))
    >>> Feature(spec, "uses of the callee", "count", low=0, high=100).unit
    'count'
    """

    spec: TensorSpec
    meaning: str
    unit: str
    low: float
    high: float
    may_be_infinite: bool = False
    is_wide: bool = False
    is_derived: bool = False


class OfBoth(Generic[_T]):
    """A method that a class has, and that says more of an object that has learned more."""

    def __init__(self, function: Callable[[Any], _T]) -> None:
        self._function = function
        self.__doc__ = function.__doc__

    def __get__(self, found: object | None, owner: type) -> Callable[[], _T]:
        return partial(self._function, owner if found is None else found)


def differences(needed: Sequence[Feature], found: Sequence[TensorSpec]) -> list[str]:
    """Return the documented features that are not sent as documented, one by one."""
    by_name = {spec.name: spec for spec in found}
    width = _width(needed, by_name.get)
    return [
        f"feature {spec.name!r}: expected {spec.type} {spec.shape}, found "
        + (f"{other.type} {other.shape}" if (other := by_name.get(spec.name)) else "none")
        for spec in (_as_wide(each, width).spec for each in needed)
        if by_name.get(spec.name) != spec
    ]


def as_wide(needed: Sequence[Feature], found: Sequence[TensorSpec]) -> tuple[Feature, ...]:
    """Return the documented features, as wide as they are sent."""
    width = _width(needed, {spec.name: spec for spec in found}.get)
    return tuple(_as_wide(each, width) for each in needed)


def besides(needed: Sequence[Feature], found: Sequence[TensorSpec]) -> Iterator[Feature]:
    """Return the extra features that are sent, of which only the type is known."""
    known = {each.spec.name for each in needed}
    for spec in found:
        if spec.name not in known:
            about = np.iinfo(spec.dtype) if spec.dtype.kind in "iu" else np.finfo(spec.dtype)
            low, high = float(about.min), float(about.max)
            is_float = spec.dtype.kind == "f"
            yield Feature(spec, "not documented here", "unknown", low, high, is_float)


def layout_differences(expected: Sequence[TensorSpec], found: Sequence[TensorSpec]) -> str:
    """How the tensors of two observations differ; empty where they do not."""
    mine, others = ([f"{s.name} {s.type} {s.shape}" for s in each] for each in (expected, found))
    lacking = [each for each in mine if each not in others]
    more = [each for each in others if each not in mine]
    if not lacking and not more:
        return "" if mine == others else "features: expected the same order, found another"
    return f"features: expected {lacking or 'no others'}, found {more or 'none of them'}"


def _width(needed: Sequence[Feature], find: Callable[[str], TensorSpec | None]) -> int | None:
    """How wide the first of the wide features is sent."""
    for each in needed:
        spec = find(each.spec.name) if each.is_wide else None
        if spec and spec.shape and spec.shape[-1] >= _LEAST_WIDTH:
            return spec.shape[-1]
    return None


def _as_wide(feature: Feature, width: int | None) -> Feature:
    if width is None or not feature.is_wide or feature.spec.shape[-1] == width:
        return feature
    spec = feature.spec
    return replace(feature, spec=replace(spec, shape=(*spec.shape[:-1], width)))

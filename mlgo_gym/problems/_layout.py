"""Layouts: the tensors of observations, as they are documented and as an LLVM sends them.

LLVM's MLGO page promises that features come and go. So each that is documented must be there and of
its type and shape, wherever in the order it stands; extra tensors harm nobody and are kept. Of
features that are as wide as LLVM likes, such as eviction's positions, all have one width.

An observation's raw tensors are packed in the order in which LLVM sends them, so the payloads of N
decisions, one after the other, are an array of N structured rows. LLVM's leading dimension of 1 is
the batch's and is left out: a feature of the shape ``(1,)`` is a number of each row, one of
``(1, 33)`` a row of 33.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Final

import numpy as np

from mlgo_gym.base import EnvironmentSetupError, SpecError, TensorSpec
from mlgo_gym.stream import Header

_Array = np.ndarray[Any, Any]
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


@dataclass(frozen=True)
class Layout:
    """The tensors of an observation, and the one that answers it.

    Attributes:
        name: the name of the problem.
        advice: the tensor that answers an observation.
        features: what a policy may look at.
        extras: tensors that are sent for information.
        specs: the specs of features and extras in the order in which they are sent; where none are
            given, features come first.

    >>> from mlgo_gym.problems import RegallocPriority
    >>> layout = RegallocPriority().layout
    >>> layout.feature_names
    ('li_size', 'stage', 'weight')
    >>> layout.dtype
    dtype([('li_size', '<i8'), ('stage', '<i8'), ('weight', '<f4')])
    """

    name: str
    advice: TensorSpec = field(repr=False)
    features: tuple[Feature, ...] = field(repr=False)
    extras: tuple[Feature, ...] = field(default=(), repr=False)
    specs: tuple[TensorSpec, ...] = field(default=(), repr=False)

    def __post_init__(self) -> None:
        if not self.specs:
            specs = tuple(each.spec for each in self.features + self.extras)
            object.__setattr__(self, "specs", specs)

    @property
    def feature_names(self) -> tuple[str, ...]:
        """The names of the features, in their order."""
        return tuple(each.spec.name for each in self.features)

    @property
    def tensors(self) -> tuple[Feature, ...]:
        """Features and extras in the order in which they are sent."""
        by_name = {each.spec.name: each for each in self.features + self.extras}
        return tuple(by_name[spec.name] for spec in self.specs)

    @cached_property
    def infinite(self) -> tuple[Feature, ...]:
        """The features for which LLVM may send infinity or NaN."""
        return tuple(each for each in self.features if each.may_be_infinite)

    @property
    def derived(self) -> tuple[str, ...]:
        """The names of tensors that no LLVM sends by itself."""
        return tuple(each.spec.name for each in self.features + self.extras if each.is_derived)

    @property
    def header(self) -> Header:
        """The header of an LLVM that sends these tensors."""
        return Header(self.specs, advice=self.advice)

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of one observation: a field for each tensor, in order, packed."""
        return dtype_of(self.specs)

    def array(self, payloads: Iterable[bytes]) -> _Array:
        """Return raw observations as one array ``[N]`` of `dtype`, which cannot be written to.

        Args:
            payloads: the raw tensors of each observation, such as `Observation.payload`.

        Raises:
            SpecError: a payload has another length than these observations.

        >>> from mlgo_gym.problems import RegallocPriority
        >>> RegallocPriority().layout.array([bytes(20)] * 3)["li_size"].shape
        (3,)
        """
        dtype = self.dtype
        rows = list(payloads)
        for number, row in enumerate(rows):
            if len(row) != dtype.itemsize:
                raise SpecError(
                    f"observation {number} of {self.name}: expected {dtype.itemsize} bytes, "
                    f"found {len(row)}"
                )
        return np.frombuffer(b"".join(rows), dtype)

    def columns(self, array: _Array) -> dict[str, _Array]:
        """Return the features of observations by name, contiguous, ``[N]`` or ``[N, 33]``."""
        return {name: np.ascontiguousarray(array[name]) for name in self.feature_names}

    def replace_infinite(self, arrays: Mapping[str, _Array]) -> None:
        """Replace NaN and infinity in features by the upper bound, in place.

        It is what environments show, and so what policies learn from.

        >>> from mlgo_gym.problems import RegallocPriority
        >>> weights = np.array([1.0, np.inf], np.float32)
        >>> RegallocPriority().layout.replace_infinite({"weight": weights})
        >>> bool(np.isfinite(weights).all())
        True
        """
        for feature in self.infinite:
            values = arrays[feature.spec.name]
            values[~np.isfinite(values)] = feature.high

    def differences(self, header: Header) -> list[str]:
        """Return the tensors that a header does not have as they are here. Ignore extra ones."""
        by_name = {spec.name: spec for spec in header.features}
        found = [
            f"feature {spec.name!r}: expected {spec.type} {spec.shape}, found "
            + (f"{other.type} {other.shape}" if (other := by_name.get(spec.name)) else "none")
            for spec in (each.spec for each in _as_wide(self.features + self.extras, header))
            if by_name.get(spec.name) != spec
        ]
        if header.advice != self.advice:
            found.append(f"advice: expected {self.advice}, found {header.advice}")
        return found

    def check(self, header: Header) -> None:
        """Compare what LLVM says it sends with what is needed.

        Raises:
            EnvironmentSetupError: this LLVM lacks features, or has others of their names; the
                message names them.
        """
        if found := self.differences(header):
            raise EnvironmentSetupError(
                f"{self.name}: this LLVM describes the problem differently: {'; '.join(found)}"
            )

    def as_sent(
        self, header: Header, observe: Collection[str] = (), optional: Collection[str] = ()
    ) -> Layout:
        """Return the layout of all that an LLVM sends, in its order and of its widths.

        Args:
            header: LLVM's description of what it sends.
            observe: names of undocumented tensors that become features, and not extras.
            optional: likewise, where they are sent.

        Raises:
            EnvironmentSetupError: as from `check`, or LLVM sends nothing of such a name.
        """
        self.check(header)
        if header.features == self.specs:
            return self
        names = [each.spec.name for each in self._undocumented(header)]
        if lacking := set(observe) - {*names}:
            raise EnvironmentSetupError(
                f"{self.name}: observe: expected some of {names}, which this LLVM sends besides, "
                f"found {sorted(lacking)}"
            )
        made = self.extended(header, {*observe, *optional})
        features, extras = (_as_wide(each, header) for each in (made.features, made.extras))
        return replace(made, features=features, extras=extras, specs=header.features)

    def extended(self, header: Header, optional: Collection[str] = ()) -> Layout:
        """Return this layout, and behind it the undocumented tensors that an LLVM sends.

        Args:
            header: LLVM's description of what it sends, in any order and of any widths.
            optional: names of those that become features, and not extras.

        Raises:
            EnvironmentSetupError: as from `check`.
        """
        self.check(header)
        more = list(self._undocumented(header))
        if not more:
            return self
        features = tuple(each for each in more if each.spec.name in optional)
        extras = tuple(each for each in more if each.spec.name not in optional)
        return replace(
            self, features=self.features + features, extras=self.extras + extras, specs=()
        )

    def _undocumented(self, header: Header) -> Iterator[Feature]:
        """The extra tensors, of which only the type is known."""
        known = {spec.name for spec in self.specs}
        for spec in header.features:
            if spec.name not in known:
                about = np.iinfo(spec.dtype) if spec.dtype.kind in "iu" else np.finfo(spec.dtype)
                low, high = float(about.min), float(about.max)
                is_float = spec.dtype.kind == "f"
                yield Feature(spec, "not documented here", "unknown", low, high, is_float)


def row_shape(spec: TensorSpec) -> tuple[int, ...]:
    """A tensor's shape in one row: without the leading 1 that stands for the batch.

    >>> row_shape(TensorSpec("mask", "int64_t", (1, 33))), row_shape(TensorSpec("x", "float", (1,)))
    ((33,), ())
    """
    return spec.shape[1:] if spec.shape[:1] == (1,) else spec.shape


def dtype_of(specs: Iterable[TensorSpec]) -> np.dtype[Any]:
    """The dtype of tensors, one after the other, packed."""
    return np.dtype([(spec.name, spec.dtype, row_shape(spec)) for spec in specs])


def layout_differences(expected: Sequence[TensorSpec], found: Sequence[TensorSpec]) -> str:
    """How the tensors of two observations differ; empty where they do not."""
    mine, others = ([f"{s.name} {s.type} {s.shape}" for s in each] for each in (expected, found))
    lacking = [each for each in mine if each not in others]
    more = [each for each in others if each not in mine]
    if not lacking and not more:
        return "" if mine == others else "features: expected the same order, found another"
    return f"features: expected {lacking or 'no others'}, found {more or 'none of them'}"


def _as_wide(features: Sequence[Feature], header: Header) -> tuple[Feature, ...]:
    """Features as wide as they are sent: as the first of the wide ones is."""
    sent = {spec.name: spec.shape for spec in header.features}
    shapes = (sent.get(each.spec.name, ()) for each in features if each.is_wide)
    width = next((each[-1] for each in shapes if each and each[-1] >= _LEAST_WIDTH), None)
    return tuple(each if width is None else _of_width(each, width) for each in features)


def _of_width(feature: Feature, width: int) -> Feature:
    spec = feature.spec
    if not feature.is_wide or spec.shape[-1] == width:
        return feature
    return replace(feature, spec=replace(spec, shape=(*spec.shape[:-1], width)))

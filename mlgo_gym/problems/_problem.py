"""What a problem is: features, advice and the LLVM options that hand the heuristic out.

A problem documents what LLVM sends; it does not decide it. Names, types and shapes come from the
header that LLVM writes when the advisor is built, and `Problem.check_header` compares the two.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Final

from mlgo_gym.errors import EnvironmentSetupError
from mlgo_gym.stream._events import Header, Observation
from mlgo_gym.tensor_spec import TensorSpec

Action = int | float
"""What answers an observation: a number, whole where the advice is."""

COUNT_LIMIT: Final = 2**53
"""Bound of features that count: every value below it is exact as a float64."""


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
    """

    spec: TensorSpec
    meaning: str
    unit: str
    low: float
    high: float
    may_be_infinite: bool = False


class Problem(ABC):
    """A heuristic that LLVM hands out.

    Attributes:
        name: the problem's name, as in the environment's id.
        features: what a policy may look at, in the order in which LLVM sends it.
        extras: what LLVM sends besides, for information, after the features.
        advice: the tensor that answers an observation.
    """

    name: ClassVar[str]
    features: ClassVar[tuple[Feature, ...]]
    extras: ClassVar[tuple[Feature, ...]]
    advice: ClassVar[TensorSpec]

    @abstractmethod
    def advisor_options(self, channel_base: str) -> tuple[str, ...]:
        """LLVM's options that make the advisor ask over the channel of this base path."""

    @abstractmethod
    def default_options(self) -> tuple[str, ...]:
        """LLVM's options that leave the decisions to LLVM's own heuristic."""

    @abstractmethod
    def encode_advice(self, action: Action, observation: Observation) -> bytes:
        """The advice tensor's raw bytes for an action.

        Raises:
            UsageError: LLVM does not take this action for this observation.
        """

    @abstractmethod
    def fallback_action(self, observation: Observation) -> Action:
        """An action that LLVM takes and that makes for little work, to get to the end."""

    @abstractmethod
    def settings(self) -> dict[str, str | float]:
        """What was chosen for this problem, for the record: JSON values by name."""

    @classmethod
    def sent(cls) -> tuple[TensorSpec, ...]:
        """The specs of everything in an observation, in order."""
        return tuple(feature.spec for feature in cls.features + cls.extras)

    @classmethod
    def infinite_features(cls) -> tuple[Feature, ...]:
        """The features for which LLVM may send infinity or NaN."""
        return tuple(feature for feature in cls.features if feature.may_be_infinite)

    @classmethod
    def check_header(cls, header: Header) -> None:
        """Compare what LLVM says it sends with what is documented here.

        Raises:
            EnvironmentSetupError: this LLVM has other features; the message names them.
        """
        differences = _differences(cls.sent(), header.features)
        if header.advice != cls.advice:
            differences.append(f"advice: expected {cls.advice}, found {header.advice}")
        if differences:
            raise EnvironmentSetupError(
                f"{cls.name}: this LLVM describes the problem differently: {'; '.join(differences)}"
            )


def _differences(expected: Sequence[TensorSpec], found: Sequence[TensorSpec]) -> list[str]:
    by_name = {spec.name: spec for spec in found}
    differences = [
        f"feature {spec.name!r}: expected {spec.type} {spec.shape}, found "
        + (f"{other.type} {other.shape}" if (other := by_name.get(spec.name)) else "none")
        for spec in expected
        if by_name.get(spec.name) != spec
    ]
    known = {spec.name for spec in expected}
    differences += [f"unknown feature {name!r}" for name in by_name if name not in known]
    if not differences and list(expected) != list(found):
        differences.append("the features come in another order")
    return differences

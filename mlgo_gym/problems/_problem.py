"""What a problem is: features, advice and the LLVM options that hand the heuristic out.

A problem documents what LLVM sends; it does not decide it. Names, types and shapes come from the
header that LLVM writes when the advisor is built, and `Problem.check_header` compares the two.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final

import numpy as np

from mlgo_gym.errors import EnvironmentSetupError, OptionsError
from mlgo_gym.problems._policy import Action, Policy
from mlgo_gym.stream._events import Header, Observation
from mlgo_gym.tensor_spec import TensorSpec

if TYPE_CHECKING:
    from gymnasium import spaces

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


class Problem(ABC):
    """A heuristic that LLVM hands out, and all that depends on which one it is.

    A problem is a frozen dataclass; its fields are its settings, and options of the command line
    (``metadata={"help": ..., "metavar": ...}``). It is found by its entry point in the group
    ``mlgo_gym.problems``, whose name is what the command line calls it.

    Attributes:
        name: the problem's name, as in the environment's id and on model cards.
        driver_name: what ``mlgo-cc`` calls it; empty where it does not know it.
        features: what a policy may look at, in the order in which LLVM sends it.
        extras: what LLVM sends besides, for information, after the features.
        advice: the tensor that answers an observation.
        policies: those that have a name; each takes a seed.
        default_policy: the name of the one that is taken where none is named.
        rule: the name of the one that new networks start as; empty where there is no network.
        compared: the names of those that are worth comparing with.
        measure: what compilations are compared by: where a `mlgo_gym.scoring.Measure` stands, as
            ``module:name``.
        network: what is trained: where a network stands, as ``module:name``; empty for none.

    >>> from mlgo_gym.problems import InliningForSize
    >>> InliningForSize.name, InliningForSize.default_policy
    ('InliningForSize', 'default')
    """

    name: ClassVar[str]
    driver_name: ClassVar[str] = ""
    features: ClassVar[tuple[Feature, ...]]
    extras: ClassVar[tuple[Feature, ...]]
    advice: ClassVar[TensorSpec]
    policies: ClassVar[Mapping[str, Callable[[int], Policy]]]
    default_policy: ClassVar[str]
    rule: ClassVar[str] = ""
    compared: ClassVar[tuple[str, ...]]
    measure: ClassVar[str]
    network: ClassVar[str] = ""

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

    @abstractmethod
    def action_space(self) -> spaces.Space[Any]:
        """Gymnasium's space of the actions, legal or not."""

    def action_mask(
        self,
        observation: Observation | None,  # noqa: ARG002
    ) -> np.ndarray[Any, np.dtype[np.int8]] | None:
        """Which actions LLVM takes, ``int8 (actions,)``; ``None`` where it takes all.

        Args:
            observation: what is asked; ``None`` where nothing is, which masks all but one.
        """
        return None

    def default_action(self, observation: Observation) -> Action | None:  # noqa: ARG002
        """What LLVM's own heuristic would answer; ``None`` where LLVM does not say."""
        return None

    def describe(self, observation: Observation) -> list[str]:
        """What a person sees of a question: lines of text, of the features of one number."""
        values = {each.spec.name: observation[each.spec.name] for each in self.features}
        return [f"{name}: {array.item():g}" for name, array in values.items() if array.size == 1]

    def describe_action(self, action: Action) -> str:
        """What a person sees of an answer."""
        return f"{action:g}"

    @classmethod
    def policy(cls, name: str = "", seed: int = 0) -> Policy:
        """The policy of a name.

        Args:
            name: one of `policies`; empty for the default one.
            seed: for those that answer by chance.

        Raises:
            OptionsError: no policy of this problem has this name.
        """
        name = name or cls.default_policy
        if name not in cls.policies:
            raise OptionsError(f"policy: expected one of {', '.join(cls.policies)}, found {name!r}")
        return cls.policies[name](seed)

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

"""Problems: features, advice and the LLVM options that hand a heuristic out.

A problem documents what it needs; it does not decide what LLVM sends. Names, types and shapes come
from the header that LLVM writes when the advisor is built: `Problem.check_header` compares the two
(`problems._headers`), and `Problem.as_sent` is the problem with all that the header says.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import fields, is_dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self, SupportsIndex

import numpy as np

from mlgo_gym.base import EnvironmentSetupError, OptionsError, TensorSpec
from mlgo_gym.problems._headers import Feature, OfBoth, as_wide, besides, differences
from mlgo_gym.problems._policy import Action, Policy
from mlgo_gym.stream import Header, Observation

if TYPE_CHECKING:
    from gymnasium import spaces

COUNT_LIMIT: Final = 2**53
"""Bound of features that count: every value below it is exact as a float64."""

HASH: Final = "_sha256"
"""The end of a setting's name where the hash of the file that it names is recorded."""


class Problem(ABC):
    """A heuristic that LLVM hands out, and all that depends on which one it is.

    A problem is a frozen dataclass; its fields are its settings, and options of the command line
    (``metadata={"help": ..., "metavar": ...}``). It is found by its entry point in the group
    ``mlgo_gym.problems``, whose name is what the command line calls it.

    Attributes:
        name: the problem's name, as in the environment's id and on model cards.
        driver_name: what ``mlgo-cc`` calls it; empty where it does not know it.
        features: what a policy may look at, in the order in which LLVM sends it.
        extras: tensors that LLVM sends for information, after the features.
        advice: the tensor that answers an observation.
        policies: those that have a name; each takes a seed.
        default_policy: the name of the one that is taken where none is named.
        rule: the name of the one that new networks start as; empty where there is no network.
        compared: the names of those that are worth comparing with.
        allowed: what the advice may be, so that it can be checked where LLVM asks: the least and
            the most, and the feature whose numbers other than 0 mark the positions that may be
            chosen, or ``""``; ``None`` where that does not say it, so that all is checked here.
        measure: what compilations are compared by: where a `mlgo_gym.rollout.Measure` stands, as
            ``module:name``.
        network: what is trained: where a network stands, as ``module:name``; empty for none.
        has_sites: decisions are about calls, so that it can be told where they are.
        can_leave: in functions that a policy leaves to LLVM's own heuristic it is not asked
            (`Policy.left`).
        optional: the names of features that are sent only under a setting, by its name.
        file_settings: which settings name a file, and what else each may be set to; `settings` has
            the file's hash under the setting's name and `HASH`, and the name decides nothing.

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
    allowed: ClassVar[tuple[float, float, str] | None] = None
    measure: ClassVar[str]
    network: ClassVar[str] = ""
    has_sites: ClassVar[bool] = False
    can_leave: ClassVar[bool] = False
    optional: ClassVar[Mapping[str, tuple[str, ...]]] = MappingProxyType({})
    file_settings: ClassVar[Mapping[str, Collection[str]]] = MappingProxyType({})

    @abstractmethod
    def advisor_options(self, channel_base: str) -> tuple[str, ...]:
        """LLVM's options that make the advisor ask over the channel of this base path."""

    def files(self) -> Mapping[str, bytes]:
        """Files that LLVM is to read for it: their bytes by the options that take their paths."""
        return MappingProxyType({})

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
        """Return the settings of this problem, for the record: JSON values by name."""

    @abstractmethod
    def action_space(self) -> spaces.Space[Any]:
        """Gymnasium's space of the actions, legal or not."""

    def action_mask(
        self,
        observation: Observation | None,  # noqa: ARG002
    ) -> np.ndarray[Any, np.dtype[np.int8]] | None:
        """Return a mask of legal actions, ``int8 (actions,)``; ``None`` where all are legal.

        Args:
            observation: what is asked; ``None`` where nothing is, which masks all but one.
        """
        return None

    def besides(self, observation: Observation) -> dict[str, np.ndarray[Any, Any]]:
        """Return the extra tensors that LLVM sent and the class does not know, as fresh arrays."""
        known = {each.spec.name for each in (*self.features, *type(self).extras)}
        sent = observation.sent
        if len(sent) == len(known):
            return {}
        return {name: array.copy() for name, array in sent.items() if name not in known}

    @classmethod
    def optional_names(cls) -> set[str]:
        """The names of all `optional` features."""
        return {name for names in cls.optional.values() for name in names}

    @classmethod
    def needed_settings(cls, names: Collection[str]) -> list[str]:
        """The settings without which some of these features are not sent."""
        return [each for each, features in cls.optional.items() if {*features} & {*names}]

    @property
    def derives(self) -> tuple[str, ...]:
        """The names of what is of its own making, which no LLVM sends by itself."""
        sent = (*self.features, *self.extras)
        return tuple(each.spec.name for each in sent if each.is_derived)

    def default_action(self, observation: Observation) -> Action | None:  # noqa: ARG002
        """Return LLVM's own answer; ``None`` where LLVM does not say."""
        return None

    def describe(self, observation: Observation) -> list[str]:
        """Describe a question for a person: lines of text, of the features of one number."""
        values = {each.spec.name: observation[each.spec.name] for each in self.features}
        return [f"{name}: {array.item():g}" for name, array in values.items() if array.size == 1]

    def describe_action(self, action: Action) -> str:
        """Describe an answer for a person."""
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

    @OfBoth
    def sent(self) -> tuple[TensorSpec, ...]:
        """The specs of everything in an observation, in order: of a problem, or of its class."""
        layout: tuple[TensorSpec, ...] = getattr(self, _LAYOUT, ())
        return layout or tuple(feature.spec for feature in self.features + self.extras)

    def for_worker(self) -> dict[str, Any] | None:
        """Return the facts to check answers in the worker, as JSON values, or ``None``."""
        if self.allowed is None:
            return None
        sent = [[spec.name, spec.type, list(spec.shape)] for spec in self.sent()]
        return {"allowed": list(self.allowed), "sent": sent}

    @OfBoth
    def infinite_features(self) -> tuple[Feature, ...]:
        """The features for which LLVM may send infinity or NaN."""
        return tuple(feature for feature in self.features if feature.may_be_infinite)

    def header_differences(self, header: Header) -> list[str]:
        """Return documented features that LLVM does not send as documented. Ignore extra ones."""
        found = differences(self.features + self.extras, header.features)
        if header.advice != self.advice:
            found.append(f"advice: expected {self.advice}, found {header.advice}")
        return found

    def check_header(self, header: Header) -> None:
        """Compare what LLVM says it sends with what is needed.

        Raises:
            EnvironmentSetupError: this LLVM lacks features, or has others of their names; the
                message names them.
        """
        if found := self.header_differences(header):
            raise EnvironmentSetupError(
                f"{self.name}: this LLVM describes the problem differently: {'; '.join(found)}"
            )

    def as_sent(self, header: Header, observe: Collection[str] = ()) -> Self:
        """Return this problem with the widths and the order of an LLVM, and all that it sends.

        Undocumented tensors become `extras`; those that are `optional`, or that ``observe`` names,
        become features. If nothing differs, this is the problem itself.

        Args:
            header: LLVM's description of what it sends.
            observe: names of undocumented tensors for policies to look at.

        Raises:
            EnvironmentSetupError: as from `check_header`, or LLVM sends nothing of such a name.
        """
        self.check_header(header)
        if header.features == self.sent():
            return self
        more = list(besides(self.features + self.extras, header.features))
        if lacking := set(observe) - {each.spec.name for each in more}:
            names = [each.spec.name for each in more]
            raise EnvironmentSetupError(
                f"{self.name}: observe: expected some of {names}, which this LLVM sends besides, "
                f"found {sorted(lacking)}"
            )
        wanted = {*observe, *self.optional_names()}
        chosen = tuple(each for each in more if each.spec.name in wanted)
        extra = tuple(each for each in more if each.spec.name not in wanted)
        made = copy.copy(self)
        vars(made).update(
            {
                "features": as_wide(self.features, header.features) + chosen,
                "extras": as_wide(self.extras, header.features) + extra,
                _LAYOUT: header.features,
            }
        )
        return made

    def with_all(self, header: Header) -> Self:
        """This problem as it is, and behind it what an LLVM sends besides, as `as_sent` has it.

        The problem itself where nothing is sent besides, whatever the order and the widths.

        Raises:
            EnvironmentSetupError: as from `check_header`.
        """
        sent = self.as_sent(header)
        features = self.features + sent.features[len(self.features) :]
        extras = self.extras + sent.extras[len(self.extras) :]
        layout = tuple(each.spec for each in features + extras)
        if len(layout) == len(self.sent()):
            return self
        made = copy.copy(self)
        vars(made).update({"features": features, "extras": extras, _LAYOUT: layout})
        return made

    @property
    def described(self) -> Problem | type[Problem]:
        """The description of its observations: its class, or itself where that is not all."""
        return self if self.sent() != type(self).sent() else type(self)

    @OfBoth
    def described_features(self) -> tuple[Feature, ...]:
        """`features` and `extras` in the order of `sent`."""
        by_name = {each.spec.name: each for each in self.features + self.extras}
        return tuple(by_name[spec.name] for spec in self.sent())

    def __reduce_ex__(self, protocol: SupportsIndex) -> Any:
        """A copy is described as this one is; what a frozen dataclass copies is its fields."""
        found: Any = self
        if not is_dataclass(found):
            return super().__reduce_ex__(protocol)
        settings = {each.name: getattr(self, each.name) for each in fields(found) if each.init}
        described = {name: vars(self)[name] for name in _DESCRIBED if name in vars(self)}
        return _copy_of, (type(self), settings, described)


_LAYOUT: Final = "_layout"
_DESCRIBED: Final = ("features", "extras", _LAYOUT)
"""Attributes that an object may have otherwise than its class; no settings."""


def laid_out(sent: Iterable[Feature]) -> dict[str, Any]:
    """Return an object's layout, where it is another than features and extras."""
    return {_LAYOUT: tuple(each.spec for each in sent)}


def _copy_of(
    kind: type[Problem], settings: Mapping[str, Any], described: Mapping[str, Any]
) -> Problem:
    made = kind(**settings)
    vars(made).update(described)
    return made

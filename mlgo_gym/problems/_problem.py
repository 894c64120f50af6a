"""Problems: features, advice and the LLVM options that hand a heuristic out.

A problem documents the layout that it needs; it does not decide what LLVM sends. Names, types and
shapes come from the header that LLVM writes when the advisor is built: `Layout.check` compares the
two, and `Problem.as_sent` is the problem with all that the header says.
"""

from __future__ import annotations

import copy
import functools
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self

import numpy as np

from mlgo_gym.base import OptionsError, TensorSpec
from mlgo_gym.problems._layout import Layout
from mlgo_gym.problems._policy import Action, Policy
from mlgo_gym.stream import Header, Observation

if TYPE_CHECKING:
    from gymnasium import spaces

COUNT_LIMIT: Final = 2**53
"""Bound of features that count: every value below it is exact as a float64."""

HASH_SUFFIX: Final = "_sha256"
"""The end of a setting's name where the hash of the file that it names is recorded."""


@dataclass(frozen=True)
class Problem(ABC):
    """A heuristic that LLVM hands out, and all that depends on which one it is.

    A problem is a frozen dataclass; its fields are its settings, have defaults, and are options of
    the command line (``metadata={"help": ..., "metavar": ...}``). It is found by its entry point in
    the group ``mlgo_gym.problems``, whose name is what the command line calls it.

    Attributes:
        name: the problem's name, as in the environment's id and on model cards.
        driver_name: what ``mlgo-cc`` calls it; empty where it does not know it.
        advice: the tensor that answers an observation.
        policies: those that have a name; each takes a seed.
        default_policy: the name of the one that is taken where none is named.
        rule: the name of the one that new networks start as; empty where there is no network.
        compared: the names of those that are worth comparing with.
        allowed: what the advice may be, so that it can be checked where LLVM asks: the least and
            the most, and the feature whose numbers other than 0 mark the positions that may be
            chosen, or ``""``; ``None`` where that does not say it, so that all is checked here.
        measure: what compilations are compared by: where a `mlgo_gym.rollout.Measure` stands, as
            ``module:name``. It is made without arguments; one that needs a corpus is a reward.
        network: what is trained: where a network stands, as ``module:name``; empty for none.
        has_sites: decisions are about calls, so that it can be told where they are.
        can_leave: in functions that a policy leaves to LLVM's own heuristic it is not asked
            (`Policy.left`).
        optional: the names of features that are sent only under a setting, by its name.
        file_settings: which settings name a file, and what else each may be set to; `settings` has
            the file's hash under the setting's name and `HASH_SUFFIX`; the name decides nothing.

    >>> from mlgo_gym.problems import InliningForSize
    >>> InliningForSize.name, InliningForSize.default_policy
    ('InliningForSize', 'default')
    """

    name: ClassVar[str]
    driver_name: ClassVar[str] = ""
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

    _layout: Layout | None = field(
        default_factory=lambda: None, init=False, repr=False, compare=False
    )
    """The layout that `with_layout` has given it, if any."""

    @abstractmethod
    def documented_layout(self) -> Layout:
        """Return the layout of the observations that LLVM is to send under these settings."""

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

    def extra_tensors(self, observation: Observation) -> dict[str, np.ndarray[Any, Any]]:
        """Return the tensors that are no features, nor documented as LLVM's, as fresh arrays."""
        extras = _documented_layout(self).extras
        known = {each.spec.name for each in extras if not each.is_derived}
        known.update(self.layout.feature_names)
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
    def says_default(self) -> bool:
        """Whether LLVM says what it would answer, which `default_action` then reads."""
        return type(self).default_action is not Problem.default_action

    def default_action(self, observation: Observation) -> Action | None:  # noqa: ARG002
        """Return LLVM's own answer; ``None`` where LLVM does not say."""
        return None

    def describe(self, observation: Observation) -> list[str]:
        """Describe a question for a person: lines of text, of the features of one number."""
        values = {name: observation[name] for name in self.layout.feature_names}
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

    def for_worker(self) -> dict[str, Any] | None:
        """Return the facts to check answers in the worker, as JSON values, or ``None``."""
        if self.allowed is None:
            return None
        sent = [[spec.name, spec.type, list(spec.shape)] for spec in self.layout.specs]
        return {"allowed": list(self.allowed), "sent": sent}

    @property
    def layout(self) -> Layout:
        """The layout of its observations: the documented one, or that of an LLVM (`as_sent`)."""
        return self._layout or _documented_layout(self)

    def as_sent(self, header: Header, observe: Collection[str] = ()) -> Self:
        """Return this problem with the widths and the order of an LLVM, and all that it sends.

        Undocumented tensors become extras; those that are `optional`, or that ``observe`` names,
        become features. If nothing differs, this is the problem itself.

        Args:
            header: LLVM's description of what it sends.
            observe: names of undocumented tensors for policies to look at.

        Raises:
            EnvironmentSetupError: as from `Layout.check`, or LLVM sends nothing of such a name.
        """
        return self.with_layout(self.layout.as_sent(header, observe, self.optional_names()))

    def with_layout(self, layout: Layout) -> Self:
        """Return this problem with another layout. It is equal: only settings are compared."""
        if layout == self.layout:
            return self
        other = copy.copy(self)
        object.__setattr__(other, "_layout", layout)
        return other

    def recorded_layout(self, header: Header) -> Layout:
        """Return the layout of records: this problem's, and behind it what an LLVM sends besides.

        It is the problem's own where nothing is, whatever the order and the widths.

        Raises:
            EnvironmentSetupError: as from `Layout.check`.
        """
        return self.layout.extended(header, self.optional_names())


@functools.lru_cache
def _documented_layout(problem: Problem) -> Layout:
    """The layout of equal problems, made once: environments need it at each step."""
    return problem.documented_layout()

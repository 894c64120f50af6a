"""Inlining for size: shall this call be replaced by its callee's body?

LLVM's ML inline advisor (``llvm/lib/Analysis/MLInlineAdvisor.cpp``) asks about direct calls of
functions with a body that may be inlined and need not be; calls of a function in itself are not
asked about.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Final

from mlgo_gym.base import OptionsError, TensorSpec, UsageError
from mlgo_gym.problems._call_features import CALL_FEATURES
from mlgo_gym.problems._inlining_features import DERIVED, FEATURES, embeddings, flag, number
from mlgo_gym.problems._layout import Layout
from mlgo_gym.problems._policy import Action, FunctionPolicy, Policy, RandomPolicy
from mlgo_gym.problems._problem import Problem
from mlgo_gym.problems._vocabulary import PRESETS, Vocabulary
from mlgo_gym.stream import Observation

if TYPE_CHECKING:
    from gymnasium import spaces

DEFAULT_ADVICE: Final = "inlining_default"
"""Name of the extra tensor that holds what LLVM's own heuristic would answer."""
_VOCABULARY_OPTIONS: Final = ("-ml-inliner-ir2vec-vocab-file", "-ir2vec-vocab-path")
_SHOWN: Final = ("cost_estimate", "callee_basic_block_count", "callee_users", "caller_users")
_ADVICE: Final = number("inlining_decision")
_DEFAULT: Final = flag(DEFAULT_ADVICE, "what LLVM's own heuristic would answer")
_ENCODED: Final = {action: _ADVICE.encode(action) for action in (0, 1)}


def default(observation: Observation) -> int:
    """Answer as LLVM's own heuristic would."""
    return int(observation[DEFAULT_ADVICE][0])


def always(observation: Observation) -> int:  # noqa: ARG001
    """Inline every call that LLVM asks about."""
    return 1


def never(observation: Observation) -> int:  # noqa: ARG001
    """Inline no call that LLVM asks about."""
    return 0


SKIP_POLICIES: Final = ("never", "if-caller-not-cold")
"""The values of LLVM's ``-ml-inliner-skip-policy``, its own first."""


@dataclass(frozen=True, slots=True)
class InliningForSize(Problem):
    """LLVM's inlining decisions, scored by the size of the object's text.

    Attributes:
        size_increase_threshold: the advisor stops asking, and inlining, once the module's IR has
            grown by this factor (``-ml-advisor-size-increase-threshold``). LLVM's value is 2;
            ``math.inf`` lifts the limit. With the limit in force, answering as LLVM's default
            would is not always the same as leaving the advisor off.
        ir2vec: the vocabulary of IR2Vec by which LLVM computes embeddings of callee and caller,
            which become features: a file's path, ``"ones"`` for their sizes in instructions,
            ``"one-hot"`` for counts of opcodes and types, or ``"seed-75"``, which is trained;
            without it there are none.
        derived: features that LLVM does not send, of the call that it asks about, are read from
            its module and sent behind its own: linkage, uses and sizes.
        hotness: likewise how hot the call is, by a profile in the module: shares of all counts,
            which no factor of them changes. Without a profile nothing is hot, and nothing counted.
        skip_policy: callers about which LLVM decides by its own heuristic, without asking
            (``-ml-inliner-skip-policy``): ``never`` is none of them, ``if-caller-not-cold`` all but
            those that a profile says are cold.

    Raises:
        OptionsError: the threshold is not a number above 0, the vocabulary is none, or there is no
            such policy.

    >>> len(InliningForSize().layout.features), len(InliningForSize(ir2vec="ones").layout.features)
    (38, 40)
    >>> InliningForSize(derived=True).layout.feature_names[38:41]
    ('callee_is_local', 'callee_is_shared', 'callee_is_hidden')
    >>> InliningForSize(size_increase_threshold=-1)
    Traceback (most recent call last):
    ...
    mlgo_gym.errors.OptionsError: size_increase_threshold: expected a number above 0, found -1
    """

    size_increase_threshold: float = field(
        default=2.0,
        metadata={
            "metavar": "FACTOR",
            "help": "growth at which LLVM's inline advisor stops asking; inf lifts it",
        },
    )
    ir2vec: Vocabulary | str | Path | None = field(
        default=None,
        metadata={
            "metavar": "FILE",
            "help": "a vocabulary of IR2Vec, whose embeddings of callee and caller become "
            f"features, or one of {', '.join(PRESETS)}",
        },
    )
    derived: bool = field(
        default=False,
        metadata={"help": "read linkage, uses and sizes of a call from LLVM's module, as features"},
    )
    hotness: bool = field(
        default=False,
        metadata={"help": "read how hot a call is from the counts of LLVM's module, as features"},
    )
    skip_policy: str = field(
        default="never",
        metadata={
            "metavar": "POLICY",
            "help": f"callers that LLVM decides about itself: {' or '.join(SKIP_POLICIES)}",
        },
    )

    name: ClassVar[str] = "InliningForSize"
    driver_name: ClassVar[str] = "inlining"
    advice: ClassVar[TensorSpec] = _ADVICE
    policies: ClassVar[Mapping[str, Callable[[int], Policy]]] = MappingProxyType(
        {
            "default": lambda _: FunctionPolicy(default),
            "always": lambda _: FunctionPolicy(always),
            "never": lambda _: FunctionPolicy(never),
            "random": lambda seed: RandomPolicy(seed, lambda random, _: int(random.integers(2))),
        }
    )
    default_policy: ClassVar[str] = "default"
    rule: ClassVar[str] = "default"
    compared: ClassVar[tuple[str, ...]] = ("always", "never")
    allowed: ClassVar[tuple[float, float, str]] = (0, 1, "")
    measure: ClassVar[str] = "mlgo_gym.rollout:TextSize"
    network: ClassVar[str] = "mlgo_gym.training._networks:InliningNetwork"
    has_sites: ClassVar[bool] = True
    optional: ClassVar[Mapping[str, tuple[str, ...]]] = MappingProxyType(
        {
            "ir2vec": tuple(each.spec.name for each in embeddings(1)),
            **{setting: tuple(features) for setting, features in CALL_FEATURES.items()},
        }
    )
    file_settings: ClassVar[Mapping[str, Collection[str]]] = MappingProxyType({"ir2vec": PRESETS})

    def __post_init__(self) -> None:
        value = self.size_increase_threshold
        if not isinstance(value, int | float) or math.isnan(value) or value <= 0:
            raise OptionsError(
                f"size_increase_threshold: expected a number above 0, found {value!r}"
            )
        if self.ir2vec is not None:
            object.__setattr__(self, "ir2vec", Vocabulary.of(self.ir2vec))
        for name in DERIVED:
            if not isinstance(value := getattr(self, name), bool):
                raise OptionsError(f"{name}: expected True or False, found {value!r}")
        if self.skip_policy not in SKIP_POLICIES:
            expected = " or ".join(map(repr, SKIP_POLICIES))
            raise OptionsError(f"skip_policy: expected {expected}, found {self.skip_policy!r}")

    def documented_layout(self) -> Layout:
        """LLVM's features and embeddings, its own answer, and behind it what is derived."""
        read = self.ir2vec
        embedded = embeddings(read.dimension) if isinstance(read, Vocabulary) else ()
        features = (*FEATURES, *embedded)
        derived = tuple(each for name in self._derived_settings() for each in DERIVED[name])
        specs = tuple(each.spec for each in (*features, _DEFAULT, *derived))
        return Layout(self.name, self.advice, features + derived, (_DEFAULT,), specs)

    def advisor_options(self, channel_base: str) -> tuple[str, ...]:
        """LLVM's options that make the inline advisor ask over the channel of this base path."""
        return (
            "-enable-ml-inliner=release",
            f"-inliner-interactive-channel-base={channel_base}",
            "-inliner-interactive-include-default",
            f"-ml-advisor-size-increase-threshold={float(self.size_increase_threshold)}",
            f"-ml-inliner-skip-policy={self.skip_policy}",
        )

    def files(self) -> Mapping[str, bytes]:
        """The vocabulary, which LLVM wants to be told of twice."""
        if not isinstance(self.ir2vec, Vocabulary):
            return {}
        return dict.fromkeys(_VOCABULARY_OPTIONS, self.ir2vec.data)

    def default_options(self) -> tuple[str, ...]:
        """LLVM's options that leave inlining to LLVM's own heuristic, without embeddings."""
        return ("-enable-ml-inliner=default", *(f"{each}=" for each in _VOCABULARY_OPTIONS))

    def encode_advice(self, action: Action, observation: Observation) -> bytes:  # noqa: ARG002
        """``inlining_decision``: 1 inlines the call, 0 leaves it.

        Raises:
            UsageError: the action is neither 0 nor 1.
        """
        try:
            return _ENCODED[operator.index(action)]  # type: ignore[arg-type]
        except (KeyError, TypeError) as error:
            raise UsageError(f"{self.advice.name}: expected 0 or 1, found {action!r}") from error

    def fallback_action(self, observation: Observation) -> int:  # noqa: ARG002
        """Leave the call: what is not inlined need not be optimised again."""
        return 0

    def action_space(self) -> spaces.Space[Any]:
        """1 inlines the call, 0 leaves it."""
        from gymnasium import spaces  # noqa: PLC0415 (not all who know problems need it)

        return spaces.Discrete(2)

    def default_action(self, observation: Observation) -> int:
        """Return LLVM's own answer, which it sends beside the features."""
        return default(observation)

    def describe(self, observation: Observation) -> list[str]:
        """The features that say most."""
        return [f"{name}: {int(observation[name][0])}" for name in _SHOWN]

    def describe_action(self, action: Action) -> str:
        """The answer in a word."""
        return "inline" if action else "leave"

    def settings(self) -> dict[str, str | float]:
        """The problem's name, the growth limit and the vocabulary, for the record."""
        limit = self.size_increase_threshold
        return {
            "problem": self.name,
            "size_increase_threshold": "inf" if math.isinf(limit) else float(limit),
            **(self.ir2vec.settings() if isinstance(self.ir2vec, Vocabulary) else {}),
            **dict.fromkeys(self._derived_settings(), True),
            **({"skip_policy": self.skip_policy} if self.skip_policy != SKIP_POLICIES[0] else {}),
        }

    def _derived_settings(self) -> list[str]:
        return [name for name in DERIVED if getattr(self, name)]

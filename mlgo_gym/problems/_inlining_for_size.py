"""Inlining for size: shall this call be replaced by its callee's body?

LLVM's ML inline advisor (``llvm/lib/Analysis/MLInlineAdvisor.cpp``) asks about direct calls of
functions with a body that may be inlined and need not be; calls of a function in itself are not
asked about. The features are those of ``llvm/Analysis/InlineModelFeatureMaps.h`` in LLVM 22. The
first 25 come from ``InlineCostFeaturesAnalyzer`` in ``llvm/lib/Analysis/InlineCost.cpp``, which
walks through the callee as this call's arguments would leave it; many of them are summands of the
inline cost.

Units: a *cost* counts in LLVM's inline cost, where one instruction is 5 and a call 25 more; a
*count* counts what the meaning names; a *flag* is 0 or 1.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Final

from mlgo_gym.errors import OptionsError, UsageError
from mlgo_gym.problems._headers import Feature
from mlgo_gym.problems._policy import Action, FunctionPolicy, Policy, RandomPolicy
from mlgo_gym.problems._problem import COUNT_LIMIT, Problem, laid_out
from mlgo_gym.problems._vocabulary import PRESETS, Vocabulary
from mlgo_gym.stream._events import Observation
from mlgo_gym.tensor_spec import TensorSpec

if TYPE_CHECKING:
    from gymnasium import spaces

DEFAULT_ADVICE: Final = "inlining_default"
"""Name of the extra tensor that holds what LLVM's own heuristic would answer."""

_INT32 = (-(2**31), 2**31 - 1)


def _cost(name: str, meaning: str) -> Feature:
    return Feature(_spec(name), meaning, "cost", *_INT32)


def _count(name: str, meaning: str) -> Feature:
    return Feature(_spec(name), meaning, "count", 0, COUNT_LIMIT)


def _flag(name: str, meaning: str) -> Feature:
    return Feature(_spec(name), meaning, "flag", 0, 1)


def _spec(name: str) -> TensorSpec:
    return TensorSpec(name, "int64_t", (1,))


_FEATURES: Final = (
    _cost(
        "sroa_savings",
        "what scalar replacement of the caller's allocas passed as arguments would save",
    ),
    _cost("sroa_losses", "what was counted as such savings before a use in the callee forbade it"),
    _count(
        "load_elimination",
        "repeated loads in the callee that inlining could remove; a store or call that may write "
        "sets it back to 1 and ends the counting",
    ),
    _cost("call_penalty", "calls in the callee whose target is known, 25 each"),
    _cost(
        "call_argument_setup",
        "arguments of the calls in the callee whose target is unknown, 5 each",
    ),
    _cost("load_relative_intrinsic", "uses of llvm.load.relative in the callee, 15 each"),
    _cost(
        "lowered_call_arg_setup",
        "arguments of the calls in the callee whose target is known, 5 each",
    ),
    _cost("indirect_call_penalty", "indirect calls in the callee; LLVM 22 leaves it 0"),
    _cost("jump_table_penalty", "switches in the callee that become jump tables, by table size"),
    _cost("case_cluster_penalty", "switches in the callee of at most three case clusters"),
    _cost(
        "switch_default_dest_penalty",
        "reachable default destinations of the callee's jump tables, 10 each",
    ),
    _cost(
        "switch_penalty", "other switches in the callee, by the compares they are expected to take"
    ),
    _cost(
        "unsimplified_common_instructions",
        "the callee's instructions that this call's arguments do not simplify away, 5 each",
    ),
    _cost(
        "num_loops",
        "outermost loops of the callee, 25 each, where the caller is minsize; otherwise 0",
    ),
    _count("dead_blocks", "blocks of the callee that this call's arguments make unreachable"),
    _count(
        "simplified_instructions", "instructions of the callee that this call's arguments fold away"
    ),
    _count("constant_args", "arguments of this call that are constants"),
    _count(
        "constant_offset_ptr_args",
        "arguments of this call that are pointers at a constant offset from a known base",
    ),
    _cost("callsite_cost", "minus what the call itself costs: its arguments and the call"),
    _flag("cold_cc_penalty", "the callee uses the cold calling convention"),
    _flag(
        "last_call_to_static_bonus",
        "the callee is local to the module and this is its only use: it would disappear",
    ),
    _flag("is_multiple_blocks", "the callee branches, as far as this call's arguments leave open"),
    _count(
        "nested_inlines", "indirect calls in the callee that become direct and could be inlined"
    ),
    _cost("nested_inline_cost_estimate", "the inline cost of those nested calls, summed"),
    _cost(
        "threshold",
        "5 and the target's bonuses for one block and for vectors, less the one for one block for "
        "every block of the callee that is reached",
    ),
    _count("callee_basic_block_count", "basic blocks of the callee"),
    _count(
        "callsite_height",
        "level of the caller in the original call graph, measured from the farthest leaf",
    ),
    _count("node_count", "functions defined in the module at this moment"),
    _count("nr_ctant_params", "arguments of this call that are constants in the IR"),
    _cost("cost_estimate", "the inline cost of this call: what -Oz compares with its threshold"),
    _count("edge_count", "direct calls to defined functions in the module at this moment"),
    _count("caller_users", "uses of the caller in the module, 1 more if it is visible outside"),
    _count(
        "caller_conditionally_executed_blocks",
        "successors of the caller's conditional branches and switches, summed",
    ),
    _count("caller_basic_block_count", "basic blocks of the caller"),
    _count(
        "callee_conditionally_executed_blocks",
        "successors of the callee's conditional branches and switches, summed",
    ),
    _count("callee_users", "uses of the callee in the module, 1 more if it is visible outside"),
    _flag("is_callee_avail_external", "the callee's body is only a copy of one defined elsewhere"),
    _flag("is_caller_avail_external", "the caller's body is only a copy of one defined elsewhere"),
)


def _derived(name: str, meaning: str, unit: str = "count") -> Feature:
    high = 1 if unit == "flag" else COUNT_LIMIT
    return Feature(_spec(name), meaning, unit, 0, high, is_derived=True)


_DERIVED: Final = (
    _derived("callee_is_local", "the callee is internal or private to its module", "flag"),
    _derived(
        "callee_is_shared",
        "the callee is linkonce or weak: other objects may have it, and a linker keeps one",
        "flag",
    ),
    _derived("callee_is_hidden", "the callee's visibility is hidden", "flag"),
    _derived("callee_call_sites", "calls and invokes of the callee in the module at this moment"),
    _derived("callee_callers", "functions that have such calls; at most 64 are told apart"),
    _derived("callee_other_uses", "uses of the callee other than calls: its address is taken"),
    _derived("callee_instruction_count", "instructions of the callee"),
    _derived("caller_instruction_count", "instructions of the caller"),
)
"""In the order of `mlgo_gym.llvm.process._call_site`, which reads them from LLVM's module."""


def _embeddings(dimension: int) -> tuple[Feature, ...]:
    """What LLVM sends after the others where it has a vocabulary (LLVM's pull request 143479)."""
    return tuple(
        Feature(
            TensorSpec(f"{which}_embedding", "float", (dimension,)),
            f"IR2Vec's embedding of the {which}, by the vocabulary",
            "sum over instructions",
            -_LARGEST_FLOAT,
            _LARGEST_FLOAT,
        )
        for which in ("callee", "caller")
    )


_LARGEST_FLOAT: Final = 3.4028234663852886e38
_VOCABULARY_OPTIONS: Final = ("-ml-inliner-ir2vec-vocab-file", "-ir2vec-vocab-path")
_SHOWN: Final = ("cost_estimate", "callee_basic_block_count", "callee_users", "caller_users")
_ADVICE: Final = _spec("inlining_decision")
_ENCODED: Final = {action: _ADVICE.encode(action) for action in (0, 1)}


def default(observation: Observation) -> int:
    """What LLVM's own heuristic would answer."""
    return int(observation[DEFAULT_ADVICE][0])


def always(observation: Observation) -> int:  # noqa: ARG001
    """Inline every call that LLVM asks about."""
    return 1


def never(observation: Observation) -> int:  # noqa: ARG001
    """Inline no call that LLVM asks about."""
    return 0


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

    Raises:
        OptionsError: the threshold is not a number above 0, or the vocabulary is none.

    >>> len(InliningForSize.features), len(InliningForSize(ir2vec="ones").features)
    (38, 40)
    >>> [each.spec.name for each in InliningForSize(derived=True).features[38:41]]
    ['callee_is_local', 'callee_is_shared', 'callee_is_hidden']
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

    name: ClassVar[str] = "InliningForSize"
    driver_name: ClassVar[str] = "inlining"
    features: ClassVar[tuple[Feature, ...]] = _FEATURES
    extras: ClassVar[tuple[Feature, ...]] = (
        _flag(DEFAULT_ADVICE, "what LLVM's own heuristic would answer"),
    )
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
    measure: ClassVar[str] = "mlgo_gym.scoring:TextSize"
    network: ClassVar[str] = "mlgo_gym.training._networks:InliningNetwork"
    optional: ClassVar[Mapping[str, tuple[str, ...]]] = MappingProxyType(
        {
            "ir2vec": tuple(each.spec.name for each in _embeddings(1)),
            "derived": tuple(each.spec.name for each in _DERIVED),
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
            vocabulary = Vocabulary.of(self.ir2vec)
            object.__setattr__(self, "ir2vec", vocabulary)
            vars(self)["features"] = _FEATURES + _embeddings(vocabulary.dimension)
        if not isinstance(self.derived, bool):
            raise OptionsError(f"derived: expected True or False, found {self.derived!r}")
        if self.derived:
            sent = (*self.features, *self.extras, *_DERIVED)
            vars(self).update(features=self.features + _DERIVED, **laid_out(sent))

    def advisor_options(self, channel_base: str) -> tuple[str, ...]:
        """LLVM's options that make the inline advisor ask over the channel of this base path."""
        return (
            "-enable-ml-inliner=release",
            f"-inliner-interactive-channel-base={channel_base}",
            "-inliner-interactive-include-default",
            f"-ml-advisor-size-increase-threshold={float(self.size_increase_threshold)}",
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
        """What LLVM sends beside the features."""
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
            **({"derived": True} if self.derived else {}),
        }

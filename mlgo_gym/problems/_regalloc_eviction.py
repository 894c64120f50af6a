"""Register allocation, eviction: whose registers are taken for a live range that finds none free?

LLVM's greedy allocator asks when a live range finds no free register
(``llvm/lib/CodeGen/MLRegAllocEvictAdvisor.cpp``; the features of LLVM 22). Every observation holds
33 *positions*, or as many as the header says: LLVM's main branch is giving up the fixed number.
Position ``p`` below 32, the last, is the ``p``-th register of the range's allocation order; to
choose it is to evict all live ranges that are in it and interfere. Position 32 is the live range
that asks: to choose it is to evict nothing now, after which the range is split or spilled. Where
the range cannot be spilled and something must be found, position 32 is masked. What the features
say of a position is said of the interfering live ranges there, taken together; of position 32, of
the live range that asks.

All features but the flags, the stages and ``progress`` are divided by the largest value among
the positions of the same observation, so they compare positions and not observations; the largest
is 1, or 0 where all are 0. The exception is a live range of infinite weight, which may not be
spilled: its ``use_def_density`` is NaN (infinity divided by itself), and all finite ones are 0.

Contexts are functions, in the order in which LLVM generates code for them.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Final

import numpy as np

from mlgo_gym.base import OptionsError, TensorSpec, UsageError
from mlgo_gym.problems._layout import Feature, Layout
from mlgo_gym.problems._policy import Action, FunctionPolicy, Policy, RandomPolicy
from mlgo_gym.problems._problem import Problem
from mlgo_gym.stream import Observation

if TYPE_CHECKING:
    from gymnasium import spaces

POSITIONS: Final = 33
"""How many choices an observation of LLVM 22 has, legal or not; the header says how many."""

ASKING_POSITION: Final = 32
"""The position of the live range that asks (``CandidateVirtRegPos``): the last there is."""

_STAGE: Final = (0, 6)
"""``LiveRangeStage``: new 0, assign 1, split 2, split further 3, spill 4; then it stays."""


def _wide(name: str, kind: str, *about: Any) -> Feature:
    return replace(Feature(TensorSpec(name, kind, (1, POSITIONS)), *about), is_wide=True)


def _flag(name: str, meaning: str) -> Feature:
    return _wide(name, "int64_t", meaning, "flag", 0, 1)


def _ratio(name: str, meaning: str) -> Feature:
    return _wide(name, "float", meaning, "share of largest", 0, 1)


def _stage(name: str, meaning: str) -> Feature:
    return _wide(name, "int64_t", meaning, "stage", *_STAGE)


_FEATURES: Final = (
    _flag("mask", "the position may be chosen"),
    _flag("is_free", "nothing there interferes: choosing it evicts nothing"),
    _ratio(
        "nr_urgent",
        "live ranges there that were evicted for this one's sake before, and may be again only "
        "because this one cannot be spilled",
    ),
    _ratio(
        "nr_broken_hints", "live ranges there that are now in a register that a copy wants them in"
    ),
    _flag("is_hint", "the register is one that a copy wants the asking range in; 0 at 32"),
    _wide(
        "is_local",
        "int64_t",
        "live ranges there that lie within one block, if the asking one does too; 0 at 32",
        "count",
        0,
        2**31 - 1,
    ),
    _ratio(
        "nr_rematerializable", "live ranges there whose value can be computed again where needed"
    ),
    _ratio("nr_defs_and_uses", "instructions that define or use the live ranges there"),
    _ratio("weighed_reads_by_max", "instructions that only read them, by block frequency"),
    _ratio("weighed_writes_by_max", "instructions that only write them, by block frequency"),
    _ratio(
        "weighed_read_writes_by_max", "instructions that read and write them, by block frequency"
    ),
    _ratio(
        "weighed_indvars_by_max",
        "writes of them in a loop's exiting block that live on after it, by block frequency",
    ),
    _ratio(
        "hint_weights_by_max", "copies that want them in a certain register, by block frequency"
    ),
    _ratio("start_bb_freq_by_max", "frequency of the block where the first of them starts"),
    _ratio("end_bb_freq_by_max", "frequency of the block where the last of them ends"),
    _ratio("hottest_bb_freq_by_max", "frequency of the most frequent block that mentions them"),
    _ratio("liverange_size", "from the first one's start to the last one's end, in instructions"),
    _wide(
        "use_def_density",
        "float",
        "the largest of their spill weights, which is what LLVM's own heuristic compares; NaN "
        "where one of them may not be spilled",
        "share of largest",
        0,
        1,
        True,
    ),
    _stage("max_stage", "the furthest stage that one of them has reached"),
    _stage("min_stage", "the least stage that one of them has reached"),
    Feature(
        TensorSpec("progress", "float", (1,)),
        "live ranges that wait for a register, against the virtual registers at the start; above "
        "1 where splitting has made more",
        "ratio",
        0,
        2**31 - 1,
    ),
)

_LIVE_RANGE: Final = Feature(
    TensorSpec("live_range", "int64_t", (1,)),
    "the virtual register of the live range that asks",
    "number",
    -1,
    2**31 - 1,
    is_derived=True,
)

_ADVICE: Final = TensorSpec("index_to_evict", "int64_t", (1,))


def _asking_position(observation: Observation) -> int:
    return int(observation["mask"].shape[-1]) - 1


def legal_positions(observation: Observation) -> list[int]:
    """The positions that LLVM takes as an answer, in order; there is always one."""
    mask = observation["mask"][0]
    return [int(position) for position in np.flatnonzero(mask)]


# Policies to compare with. LLVM's own heuristic is not among them: it cannot be asked, only left
# alone. They look at what LLVM sends as it is; a `use_def_density` that is NaN belongs to a live
# range that may not be spilled, and counts as the largest.


def first_legal(observation: Observation) -> int:
    """The first register of the allocation order that may be taken."""
    return legal_positions(observation)[0]


def keep(observation: Observation) -> int:
    """Evict nothing wherever that is legal; otherwise take the first legal position."""
    legal = legal_positions(observation)
    asking = _asking_position(observation)
    return asking if asking in legal else legal[0]


def lowest_density(observation: Observation) -> int:
    """Evict the live range of the lowest spill weight, the one that asks included."""
    return _least(observation, ("use_def_density",))


def lowest_reads_and_writes(observation: Observation) -> int:
    """Evict the live range that is read and written least, the one that asks included."""
    kinds = ("reads", "writes", "read_writes")
    return _least(observation, [f"weighed_{each}_by_max" for each in kinds])


def _least(observation: Observation, names: Sequence[str]) -> int:
    """The legal position where the sum of some features is least, the first of equal ones."""
    values = np.sum([observation[name][0] for name in names], axis=0)
    values = np.nan_to_num(values, nan=np.inf)
    legal = legal_positions(observation)
    return legal[int(np.argmin(values[legal]))]


@dataclass(frozen=True)
class RegallocEviction(Problem):
    """LLVM's eviction decisions, scored by what the allocation costs.

    Attributes:
        max_eviction_count: how often a live range may be evicted before it may be no more
            (``-mlregalloc-max-eviction-count``); LLVM's value is 100.
        live_range: also send the virtual register of the live range that asks; it is not a feature.
            For a given function, the numbers of live ranges that LLVM has not split are the same in
            every compilation.

    Raises:
        OptionsError: the count is not a whole number above 0, or ``live_range`` no truth value.

    >>> len(RegallocEviction().layout.features)
    21
    >>> RegallocEviction(max_eviction_count=0)
    Traceback (most recent call last):
    ...
    mlgo_gym.errors.OptionsError: max_eviction_count: expected a whole number above 0, found 0
    """

    max_eviction_count: int = field(
        default=100,
        metadata={"metavar": "N", "help": "how often LLVM lets a live range be evicted"},
    )

    live_range: bool = field(
        default=False,
        metadata={"help": "also send the number of the live range that wants a register"},
    )

    name: ClassVar[str] = "RegallocEviction"
    driver_name: ClassVar[str] = "regalloc"
    advice: ClassVar[TensorSpec] = _ADVICE
    policies: ClassVar[Mapping[str, Callable[[int], Policy]]] = MappingProxyType(
        {
            "random": lambda seed: RandomPolicy(
                seed, lambda random, observation: int(random.choice(legal_positions(observation)))
            ),
            "first": lambda _: FunctionPolicy(first_legal),
            "keep": lambda _: FunctionPolicy(keep),
            "lowest-density": lambda _: FunctionPolicy(lowest_density),
            "lowest-use": lambda _: FunctionPolicy(lowest_reads_and_writes),
        }
    )
    default_policy: ClassVar[str] = "random"
    rule: ClassVar[str] = "lowest-density"
    compared: ClassVar[tuple[str, ...]] = ("random", "first", "lowest-density")
    allowed: ClassVar[tuple[float, float, str]] = (0, math.inf, "mask")
    can_leave: ClassVar[bool] = True
    measure: ClassVar[str] = "mlgo_gym.rollout:AllocationCost"
    network: ClassVar[str] = "mlgo_gym.training._networks:EvictionNetwork"

    def __post_init__(self) -> None:
        if not isinstance(self.max_eviction_count, int) or self.max_eviction_count < 1:
            raise OptionsError(
                "max_eviction_count: expected a whole number above 0, found "
                f"{self.max_eviction_count!r}"
            )
        if not isinstance(self.live_range, bool):
            raise OptionsError(f"live_range: expected True or False, found {self.live_range!r}")

    def documented_layout(self) -> Layout:
        """LLVM's features, and the live range's number behind them."""
        extras = (_LIVE_RANGE,) if self.live_range else ()
        return Layout(self.name, self.advice, _FEATURES, extras)

    def advisor_options(self, channel_base: str) -> tuple[str, ...]:
        """LLVM's options that make the eviction advisor ask over the channel of this path."""
        return (
            "-regalloc-enable-advisor=release",
            f"-regalloc-evict-interactive-channel-base={channel_base}",
            f"-mlregalloc-max-eviction-count={self.max_eviction_count}",
        )

    def default_options(self) -> tuple[str, ...]:
        """LLVM's options that leave eviction to LLVM's own heuristic."""
        return ("-regalloc-enable-advisor=default",)

    def encode_advice(self, action: Action, observation: Observation) -> bytes:
        """``index_to_evict``: a position whose ``mask`` is 1.

        Raises:
            UsageError: it is none, which would abort LLVM; the message has those that are.
        """
        try:
            position = operator.index(action)  # type: ignore[arg-type]
        except TypeError:
            position = -1
        mask = observation["mask"][0]
        if not 0 <= position < len(mask) or not mask[position]:
            legal = legal_positions(observation)
            raise UsageError(f"{self.advice.name}: expected one of {legal}, found {action!r}")
        return _encoded(position)

    def fallback_action(self, observation: Observation) -> int:
        """Evict nothing where that is legal, otherwise what comes first."""
        return keep(observation)

    def action_space(self) -> spaces.Space[Any]:
        """The positions, legal or not."""
        from gymnasium import spaces  # noqa: PLC0415 (not all who know problems need it)

        return spaces.Discrete(self.positions)

    @property
    def positions(self) -> int:
        """How many positions there are: LLVM 22's, or those of the header (`as_sent`)."""
        return self.layout.features[0].spec.shape[-1]

    def action_mask(
        self, observation: Observation | None
    ) -> np.ndarray[Any, np.dtype[np.int8]] | None:
        """LLVM's ``mask``, ``int8 (33,)``; to evict nothing where nothing is asked."""
        if observation is None:
            return np.equal(np.arange(self.positions), self.positions - 1).astype(np.int8)
        mask: np.ndarray[Any, np.dtype[np.int8]] = observation["mask"][0].astype(np.int8)
        return mask

    def describe(self, observation: Observation) -> list[str]:
        """The positions that may be chosen, with what LLVM's own heuristic compares."""
        density = observation["use_def_density"][0]
        asking = _asking_position(observation)
        return [
            f"{position:2}: use_def_density {density[position]:.4f}"
            + (", evicts nothing" if position == asking else "")
            for position in legal_positions(observation)
        ]

    def settings(self) -> dict[str, str | float]:
        """The problem's name, its limit and whether live ranges are numbered, for the record."""
        numbered = {"live_range": True} if self.live_range else {}
        return {"problem": self.name, "max_eviction_count": self.max_eviction_count, **numbered}


@functools.cache
def _encoded(position: int) -> bytes:
    return _ADVICE.encode(position)

"""Inputs of the inliner's policies: LLVM's features, those of call sites, embeddings.

Those of LLVM 22 are in ``llvm/Analysis/InlineModelFeatureMaps.h``. The first 25 come from
``InlineCostFeaturesAnalyzer`` in ``llvm/lib/Analysis/InlineCost.cpp``, which walks through the
callee as this call's arguments would leave it; many of them are summands of the inline cost.

Units: a *cost* counts in LLVM's inline cost, where one instruction is 5 and a call 25 more; a
*count* counts what the meaning names; a *flag* is 0 or 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from mlgo_gym.base import TensorSpec
from mlgo_gym.problems._call_features import CALL_FEATURES, MOST_SHARE, NO_CUTOFF
from mlgo_gym.problems._layout import Feature
from mlgo_gym.problems._problem import COUNT_LIMIT

_LARGEST_FLOAT: Final = 3.4028234663852886e38
_INT32 = (-(2**31), 2**31 - 1)


def _cost(name: str, meaning: str) -> Feature:
    return Feature(number(name), meaning, "cost", *_INT32)


def _count(name: str, meaning: str) -> Feature:
    return Feature(number(name), meaning, "count", 0, COUNT_LIMIT)


def flag(name: str, meaning: str) -> Feature:
    return Feature(number(name), meaning, "flag", 0, 1)


def number(name: str) -> TensorSpec:
    return TensorSpec(name, "int64_t", (1,))


FEATURES: Final = (
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
    flag("cold_cc_penalty", "the callee uses the cold calling convention"),
    flag(
        "last_call_to_static_bonus",
        "the callee is local to the module and this is its only use: it would disappear",
    ),
    flag("is_multiple_blocks", "the callee branches, as far as this call's arguments leave open"),
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
    flag("is_callee_avail_external", "the callee's body is only a copy of one defined elsewhere"),
    flag("is_caller_avail_external", "the caller's body is only a copy of one defined elsewhere"),
)

_HIGHEST: Final = {
    "flag": 1,
    "count": COUNT_LIMIT,
    "log share": MOST_SHARE,
    "millionths of all counts": NO_CUTOFF,
}
"""The bound of each unit of `CALL_FEATURES`."""
DERIVED: Final[Mapping[str, tuple[Feature, ...]]] = {
    setting: tuple(
        Feature(number(name), meaning, unit, 0, _HIGHEST[unit], is_derived=True)
        for name, (unit, meaning) in features.items()
    )
    for setting, features in CALL_FEATURES.items()
}
"""The features that LLVM does not send, by the setting that adds them."""


def embeddings(dimension: int) -> tuple[Feature, ...]:
    """The embeddings that LLVM sends last where it has a vocabulary (pull request 143479)."""
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

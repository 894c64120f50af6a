"""Fitting rules: a small tree (scikit-learn) to what is best for calls, with round thresholds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from sklearn.tree import DecisionTreeClassifier

from mlgo_gym.lab.tuning._rule import KNOWN, Rule, RuleNode, line_count, narrowed, simplified

_Array = np.ndarray[Any, Any]

_LEAST_LEAF_ROWS: Final = 40
_SHARES: Final = (1.0, 0.75, 0.5)
"""The parts that are tried of the leaves for which there is room: small rules overfit less."""
_ROUNDED: Final = 0.002
"""The part of a question's rows, by weight, that may be answered otherwise for a round number."""


@dataclass(frozen=True)
class Calls:
    """Features ``[N]`` by name, and how certainly they are to be inlined ``[N]``, as log-odds."""

    columns: Mapping[str, _Array]
    certainties: _Array

    def only(self, chosen: _Array) -> Calls:
        columns = {name: values[chosen] for name, values in self.columns.items()}
        return Calls(columns, self.certainties[chosen])


def fit_rules(calls: Calls, lines: int, band: tuple[int, int] | None, seed: int) -> list[Rule]:
    """The rule of most leaves that so many lines hold, and smaller ones.

    Outside of the band of costs, as the network has it, a rule answers as LLVM's rule does.
    """
    if band:
        costs = calls.columns["cost_estimate"]
        calls = calls.only((band[0] <= costs) & (costs < band[1]))
    found: list[Rule] = []
    leaves = _most_leaves(calls, lines, band, seed)
    for share in _SHARES:
        rule = _fitted(calls, max(2, round(share * leaves)), band, seed)
        if isinstance(rule, RuleNode) and rule not in found:
            found.append(rule)
    return found


def _most_leaves(calls: Calls, lines: int, band: tuple[int, int] | None, seed: int) -> int:
    """By bisection: a tree of more leaves is one of fewer with questions added."""
    fewest, beyond = 2, 2 * lines
    while beyond - fewest > 1:
        middle = (fewest + beyond) // 2
        if line_count(_fitted(calls, middle, band, seed)) <= lines:
            fewest = middle
        else:
            beyond = middle
    return fewest


def _fitted(calls: Calls, leaves: int, band: tuple[int, int] | None, seed: int) -> Rule:
    names = list(calls.columns)
    if not calls.certainties.size:
        return False
    model = DecisionTreeClassifier(
        criterion="entropy",
        max_leaf_nodes=leaves,
        min_samples_leaf=_LEAST_LEAF_ROWS,
        random_state=seed,
    ).fit(
        np.stack([calls.columns[name] for name in names], axis=1).astype(np.float64),
        calls.certainties > 0,
        sample_weight=np.abs(calls.certainties),
    )
    rule = simplified(_converted(model.tree_, names, 0, calls))
    if band:
        rule = RuleNode("cost_estimate", band[1], rule, high=False)
        if narrowed(rule, "cost_estimate", band[0] - 1) is not True:
            rule = RuleNode("cost_estimate", band[0], low=True, high=rule)
    return simplified(rule)


def _converted(tree: Any, names: list[str], node: int, calls: Calls) -> Rule:
    """A node of scikit-learn's tree and those below it; its answer is that of its calls' sum."""
    if tree.children_left[node] < 0 or not calls.certainties.size:
        return bool(calls.certainties.sum() > 0)
    name = names[tree.feature[node]]
    values = calls.columns[name]
    if KNOWN[name].unit == "flag":
        least, is_low = 1, values == 0
    else:
        least = _rounded(values, np.abs(calls.certainties), int(np.floor(tree.threshold[node])) + 1)
        is_low = values < least
    low, high = (
        _converted(tree, names, child[node], calls.only(chosen))
        for child, chosen in ((tree.children_left, is_low), (tree.children_right, ~is_low))
    )
    return RuleNode(name, least, low, high)


def _rounded(values: _Array, weights: _Array, least: int) -> int:
    """The threshold of the fewest digits that changes next to nothing."""
    most = _ROUNDED * weights.sum()
    lowest, highest = (_bound(values, weights, least, most, sign) for sign in (-1, 1))
    for zeros in range(len(str(abs(least))) - 1, 0, -1):
        below = least // 10**zeros * 10**zeros
        fitting = [each for each in (below, below + 10**zeros) if lowest <= each <= highest]
        if fitting:
            return int(min(fitting, key=lambda each: abs(each - least)))
    return least


def _bound(values: _Array, weights: _Array, least: int, most: float, sign: int) -> int:
    """How far a threshold can go down or up before calls of more than so much weight move."""
    beyond = values < least if sign < 0 else values >= least
    places = np.argsort(sign * values[beyond], kind="stable")
    near, moved = values[beyond][places], np.cumsum(weights[beyond][places])
    kept = near[moved > most]
    if not kept.size:
        return least
    return int(kept[0]) + (1 if sign < 0 else 0)

"""Placed decisions as a table: one row for each, as Parquet or as JSON (extra ``train``)."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, BinaryIO, Final, NamedTuple

import numpy as np

from mlgo_gym.corpus import ModuleKey
from mlgo_gym.datasets import pa, pq
from mlgo_gym.lab.insight._placed_decisions import PlacedDecision, PlacedDecisions
from mlgo_gym.problems import Problem

_CALL: Final = {
    "id": pa.int64(),
    "function": pa.string(),
    "number": pa.int64(),
    "file": pa.string(),
    "line": pa.int64(),
    "column": pa.int64(),
}
_RANGE: Final = {"function": pa.string(), "start": pa.int64(), "end": pa.int64()}


class _Row(NamedTuple):
    policy: str
    module: ModuleKey
    decision: PlacedDecision


def _calls(row: _Row) -> list[dict[str, object]]:
    return [{name: getattr(call, name) for name in _CALL} for call in row.decision.site.calls]


def _ranges(row: _Row) -> list[dict[str, object]]:
    return [
        dict(zip(_RANGE, (code.function, start, end), strict=True))
        for code in row.decision.code
        for start, end in code.ranges
    ]


def _of_code(row: _Row, size_bytes: int) -> int | None:
    """A size of a decision's code; ``None`` where its call is shared."""
    return size_bytes if row.decision.site.calls else None


_COLUMNS: Final[Mapping[str, tuple[Any, Callable[[_Row], object]]]] = {
    "policy": (pa.string(), lambda row: row.policy),
    "package": (pa.string(), lambda row: row.module.package),
    "module": (pa.string(), lambda row: row.module.name),
    "decision": (pa.int64(), lambda row: row.decision.index),
    "caller": (pa.string(), lambda row: row.decision.site.caller),
    "callee": (pa.string(), lambda row: row.decision.site.callee),
    "site": (pa.string(), lambda row: str(row.decision.site)),
    "calls": (pa.list_(pa.struct(_CALL)), _calls),
    "before": (pa.int64(), lambda row: row.decision.before),
    "answer": (pa.int64(), lambda row: row.decision.answer),
    "default": (pa.int64(), lambda row: row.decision.default),
    "bytes": (pa.int64(), lambda row: _of_code(row, row.decision.size_bytes)),
    "own_bytes": (pa.int64(), lambda row: _of_code(row, row.decision.own_bytes)),
    "executed": (pa.int64(), lambda row: row.decision.executed),
    "compiler_s": (pa.float64(), lambda row: row.decision.compiler_s),
    "ranges": (pa.list_(pa.struct(_RANGE)), _ranges),
}
"""The columns but those of features: their types, and what they have of a decision."""


def write_decisions(
    file: BinaryIO,
    placed: Mapping[str, Sequence[PlacedDecisions]],
    problem: Problem,
    *,
    as_json: bool = False,
) -> None:
    """Write the decisions of several policies, by their names; as JSON, a list of objects.

    Columns are ``policy``, ``package``, ``module``, ``decision`` (its number), ``caller``,
    ``callee``, ``site`` (its places, as text), ``calls`` (a struct for each, the innermost first),
    ``before`` (decisions about the same calls that came before), ``answer``, ``default`` (LLVM's),
    ``bytes`` and ``own_bytes`` (the code that came of it, with and without that of calls inside
    it; null where the call is shared), ``executed`` (the instructions that programs execute in it,
    null where it is not known), ``compiler_s`` (LLVM's seconds from this answer to its next
    question; null of the last), ``ranges`` (of that code: function, first byte in it, the byte
    behind the last), and each feature that LLVM sent.
    """
    rows = [
        _Row(policy, module.key, decision)
        for policy, modules in placed.items()
        for module in modules
        for decision in module.decisions
    ]
    columns = {
        name: pa.array([value(row) for row in rows], kind)
        for name, (kind, value) in _COLUMNS.items()
    }
    for spec in problem.layout.specs:
        values = np.array([row.decision.observation[spec.name] for row in rows])
        columns[spec.name] = pa.array(list(values) if values.ndim > 1 else values)
    table = pa.table(columns)
    if as_json:
        file.write(json.dumps(table.to_pylist(), indent=1).encode() + b"\n")
    else:
        pq.write_table(table, file)

"""Placed decisions as a table: one row for each, as Parquet or as JSON (extra ``train``)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import BinaryIO, Final

import numpy as np

from mlgo_gym.datasets import pa, pq
from mlgo_gym.lab.insight._decisions import PlacedDecision, PlacedDecisions
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
        (policy, module, decision)
        for policy, modules in placed.items()
        for module in modules
        for decision in module.decisions
    ]
    decisions = [decision for *_, decision in rows]
    sizes = [each.size_bytes if each.site.calls else None for each in decisions]
    own_sizes = [each.own_bytes if each.site.calls else None for each in decisions]
    columns = {
        "policy": pa.array([policy for policy, *_ in rows], pa.string()),
        "package": pa.array([module.key.package for _, module, _ in rows], pa.string()),
        "module": pa.array([module.key.name for _, module, _ in rows], pa.string()),
        "decision": pa.array([each.index for each in decisions], pa.int64()),
        "caller": pa.array([each.site.caller for each in decisions], pa.string()),
        "callee": pa.array([each.site.callee for each in decisions], pa.string()),
        "site": pa.array([str(each.site) for each in decisions], pa.string()),
        "calls": pa.array([_calls(each) for each in decisions], pa.list_(pa.struct(_CALL))),
        "before": pa.array([each.before for each in decisions], pa.int64()),
        "answer": pa.array([each.answer for each in decisions], pa.int64()),
        "default": pa.array([each.default for each in decisions], pa.int64()),
        "bytes": pa.array(sizes, pa.int64()),
        "own_bytes": pa.array(own_sizes, pa.int64()),
        "executed": pa.array([each.executed for each in decisions], pa.int64()),
        "compiler_s": pa.array([each.compiler_s for each in decisions], pa.float64()),
        "ranges": pa.array([_ranges(each) for each in decisions], pa.list_(pa.struct(_RANGE))),
    }
    for spec in problem.sent():
        values = np.array([each.observation[spec.name] for each in decisions])
        columns[spec.name] = pa.array(list(values) if values.ndim > 1 else values)
    table = pa.table(columns)
    if as_json:
        file.write(json.dumps(table.to_pylist(), indent=1).encode() + b"\n")
    else:
        pq.write_table(table, file)


def _calls(decision: PlacedDecision) -> list[dict[str, object]]:
    return [{name: getattr(call, name) for name in _CALL} for call in decision.site.calls]


def _ranges(decision: PlacedDecision) -> list[dict[str, object]]:
    return [
        dict(zip(_RANGE, (code.function, start, end), strict=True))
        for code in decision.code
        for start, end in code.ranges
    ]

"""``mlgo-gym box try``: boxed calls, repeated under policies, models and traces."""

from __future__ import annotations

import argparse
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from mlgo_gym.base import OptionsError, TraceError
from mlgo_gym.cli import Output
from mlgo_gym.cli import options as shared

if TYPE_CHECKING:
    from mlgo_gym.lab.boxes import Box, BoxedProgram, Trial
    from mlgo_gym.problems import PolicyLike, Problem

DESCRIPTION = (
    "Compile functions under policies and models, repeat their boxed calls with that code, and "
    "print size, instructions and time of each, and whether it behaves as the program's own code. "
    "LLVM's default is always tried."
)
_SHORTEST_NS: Final = 20
"""The least that the clock is good for; of shorter calls, instructions tell more."""
_DEFAULT, _TRACE = "default", "trace"
EXAMPLE = "mlgo-gym box try boxes --policy always --policy never"


def add_options(add: shared.Options) -> None:
    add("boxes", "DIR", "a folder that 'box record' has written")
    add("--function", "NAME", "only this function; repeat for more (default: all)", many=True)
    add.model("a model to try; repeat for more", many=True)
    add.policy(many=True)
    what = "also try the traces in this folder, which 'search' has written for these boxes"
    add("--traces", "DIR", what, type=Path)
    add.problem()
    add.opt_level()
    add.settings()
    add.seed()


@dataclass(frozen=True, slots=True)
class _Row:
    candidate: str
    text_bytes: int
    trial: Trial


def run(options: argparse.Namespace, output: Output) -> int:
    from mlgo_gym.cli import narrow_table
    from mlgo_gym.lab.boxes import BoxedProgram

    problem = shared.problem_of(options)
    heads = ("bytes", "instructions", "ns", "effects")
    table = narrow_table(("call", *heads), right=heads[:3])
    records: list[dict[str, Any]] = []
    with (
        shared.policies_of(options, problem, (_DEFAULT, _TRACE)) as policies,
        BoxedProgram.load(options.boxes) as boxes,
    ):
        chosen = {boxes.symbol(name) for name in options.function or boxes.functions}
        recorded = [each for each in boxes.recorded() if each.function in chosen]
        if not recorded:
            raise OptionsError("--function: expected one with a boxed call, found none")
        for box in output.track(recorded, "trying", len(recorded)):
            table.add_row(f"{box.function}, {box.call:,}", *("",) * len(heads))
            for row in _tried(boxes, box, policies, problem, options):
                table.add_row(f"  {row.candidate}", *_cells(row))
                records.append(_record(box, row))
    output.print(table)
    different = [each for each in records if each["difference"]]
    for each in different:
        where = "{function}, call {call:,}, {candidate}: {difference}".format(**each)
        output.print(where)
    output.json(records)
    return 1 if different else 0


def _tried(
    boxes: BoxedProgram,
    box: Box,
    policies: dict[str, PolicyLike],
    problem: Problem,
    options: argparse.Namespace,
) -> Iterator[_Row]:
    answers: dict[str, dict[Problem, PolicyLike]] = {_DEFAULT: {}}
    answers |= {name: {problem: each} for name, each in policies.items() if name != _DEFAULT}
    for name, each in answers.items():
        made = boxes.compiled(box.function, each, opt_level=options.opt_level)
        yield _row(boxes, box, name, made)
    if options.traces and (traced := _of_trace(boxes, box, problem, options.traces)):
        yield _row(boxes, box, _TRACE, traced)


def _row(boxes: BoxedProgram, box: Box, name: str, made: bytes) -> _Row:
    from mlgo_gym.corpus import function_sizes

    trial = box.trial(boxes.image(box.function, made), counted=True, timed=True)
    return _Row(name, function_sizes(made)[box.function].size_bytes, trial)


def _of_trace(boxes: BoxedProgram, box: Box, problem: Problem, folder: Path) -> bytes | None:
    """The object that a trace records; ``None`` where there is none of the function."""
    from mlgo_gym.problems import in_turn
    from mlgo_gym.rollout import Trace

    path = folder / f"{boxes.module(box.function).name}.trace"
    if not path.is_file():
        return None
    trace = Trace.load(path)
    made = boxes.compiled(box.function, {problem: in_turn(trace.actions().ravel().tolist())})
    if (found := hashlib.sha256(made).hexdigest()) != trace.object_sha256:
        expected = f"expected an object of SHA-256 {trace.object_sha256}, found {found}"
        raise TraceError(str(path), f"{expected}: it was recorded with other settings")
    return made


def _cells(row: _Row) -> tuple[str, str, str, str]:
    trial = row.trial
    instructions = "" if trial.instructions is None else f"{trial.instructions:,}"
    time = ""
    if trial.nanoseconds is not None:
        is_long = trial.nanoseconds >= _SHORTEST_NS
        time = f"{trial.nanoseconds:,.1f}" if is_long else f"< {_SHORTEST_NS}"
    return f"{row.text_bytes:,}", instructions, time, "differ" if trial.difference else "equal"


def _record(box: Box, row: _Row) -> dict[str, Any]:
    return {
        "function": box.function,
        "call": box.call,
        "candidate": row.candidate,
        "text_bytes": row.text_bytes,
        "instructions": row.trial.instructions,
        "nanoseconds": row.trial.nanoseconds,
        "difference": row.trial.difference,
    }

"""Operators that fold dimensions away: sums and extremes, argmax, softmax."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Final

from mlgo_gym.model._elementwise import Fold, instruction, maximum, minimum
from mlgo_gym.model._graph import Tensor
from mlgo_gym.model._scope import Step, row_major

_NUMBERS: Final = ("float32", "int32", "int64")


def _reduction(fold: Fold, dtypes: tuple[str, ...]) -> Callable[[Step], None]:
    """A lowering that starts from the first element of each group and folds in the rest."""

    def lower(step: Step) -> None:
        given = step.operand(0, *dtypes)
        step.expect("elements of type", given.dtype, step.output.dtype)
        axes = {step.axis(axis, len(given.shape)) for axis in step.constant(1)}
        _check_shape(step, given, axes)
        _reduce(step, given, axes, fold)

    return lower


def _check_shape(step: Step, given: Tensor, axes: set[int]) -> None:
    kept = [size for axis, size in enumerate(given.shape) if axis not in axes]
    flat = [1 if axis in axes else size for axis, size in enumerate(given.shape)]
    if list(step.output.shape) not in (kept, flat):
        raise step.error(
            f"expected the output's shape to be {kept} or {flat}, found {list(step.output.shape)}"
        )


def _reduce(step: Step, given: Tensor, axes: set[int], fold: Fold) -> None:
    writer, kind = step.writer, given.dtype
    kept = [axis for axis in range(len(given.shape)) if axis not in axes]
    folded = sorted(axes)
    strides = row_major(given.shape)
    sizes = tuple(given.shape[axis] for axis in kept)
    source, target, total = step.source(0), step.allocate(), writer.variable(kind)
    rows, inner = [strides[axis] for axis in kept], [given.shape[axis] for axis in folded]
    with writer.nest(sizes, [rows, row_major(sizes)]) as (there, here):
        identity = _IDENTITIES.get(step.kind)
        if identity is None:
            first = writer.load(kind, source, there)
        else:
            first = writer.literal(kind, identity)
        writer.put(kind, first, total)
        if kind == "float32" and identity == 0 and folded == list(range(len(kept), len(strides))):
            row = writer.address(kind, source, there)
            result = writer.sum([row], math.prod(inner), writer.get(kind, total))
        else:
            with writer.nest(inner, [[strides[axis] for axis in folded]]) as (offset,):
                value = writer.load(kind, source, writer.plus(there, offset))
                writer.put(kind, fold(writer, kind, writer.get(kind, total), value), total)
            result = writer.get(kind, total)
        if step.kind == "MEAN":
            count = writer.literal(kind, math.prod(inner))
            result = writer.binary("div", kind, result, count)
        writer.store(kind, result, target, here)


_IDENTITIES: Final[Mapping[str, float]] = {"SUM": 0, "MEAN": 0, "REDUCE_PROD": 1}
"""Where folding the first element a second time would change the result."""


def _arg_extreme(relation: str) -> Callable[[Step], None]:
    """The position of the first extreme along an axis."""

    def lower(step: Step) -> None:
        given = step.operand(0, *_NUMBERS)
        axes = step.constant(1)
        step.expect("a number of axes of", 1, len(axes))
        axis = step.axis(axes[0], len(given.shape))
        expected = [*given.shape[:axis], *given.shape[axis + 1 :]]
        step.expect("the output's shape to be", expected, list(step.output.shape))
        if step.output.dtype not in {"int32", "int64"}:
            raise step.error(f"expected an output of int32 or int64, found {step.output.dtype}")
        _search(step, given, axis, relation)

    return lower


def _search(step: Step, given: Tensor, axis: int, relation: str) -> None:
    writer, kind = step.writer, given.dtype
    outer, inner = math.prod(given.shape[:axis]), math.prod(given.shape[axis + 1 :])
    size, source, target = given.shape[axis], step.source(0), step.allocate()
    best, place = writer.variable(kind), writer.variable("int64")
    with writer.nest((outer, inner), [(size * inner, 1), (inner, 1)]) as (there, here):
        writer.put(kind, writer.load(kind, source, there), best)
        writer.put("int64", "0", place)
        with writer.loop(size) as position:
            offset = writer.plus(there, writer.scaled(position, inner))
            value, known = writer.load(kind, source, offset), writer.get(kind, best)
            better = writer.compare(relation, kind, value, known)
            writer.put(kind, writer.select(better, kind, value, known), best)
            known = writer.get("int64", place)
            writer.put("int64", writer.select(better, "int64", position, known), place)
        result = writer.convert("int64", step.output.dtype, writer.get("int64", place))
        writer.store(step.output.dtype, result, target, here)


def _softmax(step: Step) -> None:
    """``exp(beta * (x - max))`` over its sum, along the last axis."""
    given, writer = step.operand(0, "float32"), step.writer
    step.expect("the output's shape to be", list(given.shape), list(step.output.shape))
    step.expect("an output of type", "float32", step.output.dtype)
    size = (1, *given.shape)[-1]
    beta, kind = writer.literal("float32", step.real("beta")), "float32"
    source, target = step.source(0), step.allocate()
    largest = writer.variable(kind)
    with writer.loop(given.element_count // size) as row:
        start = writer.scaled(row, size)
        writer.put(kind, writer.load(kind, source, start), largest)
        with writer.loop(size) as column:
            value = writer.load(kind, source, writer.plus(start, column))
            writer.put(kind, maximum(writer, kind, writer.get(kind, largest), value), largest)
        peak = writer.get(kind, largest)
        with writer.loop(size) as column:
            place = writer.plus(start, column)
            value = writer.binary("sub", kind, writer.load(kind, source, place), peak)
            value = writer.call("exp", kind, writer.binary("mul", kind, value, beta))
            writer.store(kind, value, target, place)
        result = [writer.address(kind, target, start)]
        total = writer.sum(result, size, writer.literal(kind, 0.0))
        scale = writer.binary("div", kind, writer.literal(kind, 1.0), total)
        with writer.loop(size) as column:
            place = writer.plus(start, column)
            value = writer.binary("mul", kind, writer.load(kind, target, place), scale)
            writer.store(kind, value, target, place)


LOWERINGS: Final[Mapping[str, Callable[[Step], None]]] = {
    "SUM": _reduction(instruction("add"), _NUMBERS),
    "MEAN": _reduction(instruction("add"), _NUMBERS),
    "REDUCE_PROD": _reduction(instruction("mul"), _NUMBERS),
    "REDUCE_MAX": _reduction(maximum, _NUMBERS),
    "REDUCE_MIN": _reduction(minimum, _NUMBERS),
    "REDUCE_ANY": _reduction(instruction("or"), ("bool",)),
    "REDUCE_ALL": _reduction(instruction("and"), ("bool",)),
    "ARG_MAX": _arg_extreme("gt"),
    "ARG_MIN": _arg_extreme("lt"),
    "SOFTMAX": _softmax,
}

"""Operators that fold dimensions away: sums and extremes, argmax, softmax."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Final

from mlgo_gym.native._elementwise import Fold, instruction, maximum, minimum
from mlgo_gym.native._graph import Tensor
from mlgo_gym.native._ir import ELEMENT_TYPES, float_literal, literal
from mlgo_gym.native._scope import Step, row_major

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
    writer, kind = step.writer, ELEMENT_TYPES[given.dtype]
    kept = [axis for axis in range(len(given.shape)) if axis not in axes]
    folded = sorted(axes)
    strides = row_major(given.shape)
    sizes = tuple(given.shape[axis] for axis in kept)
    source, target, total = step.source(0), step.allocate(), writer.allocate(kind)
    rows = [strides[axis] for axis in kept]
    with writer.nest(sizes, [rows, row_major(sizes)]) as (there, here):
        identity = _IDENTITIES.get(step.kind)
        first = writer.load(kind, source, there) if identity is None else literal(kind, identity)
        writer.store(kind, first, total)
        inner = [given.shape[axis] for axis in folded]
        with writer.nest(inner, [[strides[axis] for axis in folded]]) as (offset,):
            value = writer.load(kind, source, writer.plus(there, offset))
            writer.store(kind, fold(writer, kind, writer.load(kind, total), value), total)
        result = writer.load(kind, total)
        if step.kind == "MEAN":
            form = "fdiv" if kind == "float" else "sdiv"
            result = writer.value(f"{form} {kind} {result}, {literal(kind, math.prod(inner))}")
        writer.store(kind, result, target, here)


_IDENTITIES: Final[Mapping[str, float]] = {"SUM": 0, "MEAN": 0, "REDUCE_PROD": 1}
"""Where folding the first element a second time would change the result."""


def _arg_extreme(float_test: str, integer_test: str) -> Callable[[Step], None]:
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
        test = f"fcmp {float_test}" if given.dtype == "float32" else f"icmp {integer_test}"
        _search(step, given, axis, test)

    return lower


def _search(step: Step, given: Tensor, axis: int, test: str) -> None:
    writer, kind, index_kind = (
        step.writer, ELEMENT_TYPES[given.dtype], ELEMENT_TYPES[step.output.dtype]
    )  # fmt: skip
    outer, inner = math.prod(given.shape[:axis]), math.prod(given.shape[axis + 1 :])
    size, source, target = given.shape[axis], step.source(0), step.allocate()
    best, place = writer.allocate(kind), writer.allocate("i64")
    with writer.nest((outer, inner), [(size * inner, 1), (inner, 1)]) as (there, here):
        writer.store(kind, writer.load(kind, source, there), best)
        writer.store("i64", "0", place)
        with writer.loop(size) as position:
            offset = writer.plus(there, writer.scaled(position, inner))
            value, known = writer.load(kind, source, offset), writer.load(kind, best)
            better = writer.value(f"{test} {kind} {value}, {known}")
            value = writer.value(f"select i1 {better}, {kind} {value}, {kind} {known}")
            writer.store(kind, value, best)
            known = writer.load("i64", place)
            chosen = writer.value(f"select i1 {better}, i64 {position}, i64 {known}")
            writer.store("i64", chosen, place)
        result = writer.load("i64", place)
        if index_kind == "i32":
            result = writer.value(f"trunc i64 {result} to i32")
        writer.store(index_kind, result, target, here)


def _softmax(step: Step) -> None:
    """``exp(beta * (x - max))`` over its sum, along the last axis."""
    given, writer = step.operand(0, "float32"), step.writer
    step.expect("the output's shape to be", list(given.shape), list(step.output.shape))
    step.expect("an output of type", "float32", step.output.dtype)
    size = (1, *given.shape)[-1]
    beta = float_literal(step.real("beta"))
    source, target = step.source(0), step.allocate()
    largest, total = writer.allocate("float"), writer.allocate("float")
    with writer.loop(given.element_count // size) as row:
        start = writer.scaled(row, size)
        writer.store("float", writer.load("float", source, start), largest)
        with writer.loop(size) as column:
            value = writer.load("float", source, writer.plus(start, column))
            value = maximum(writer, "float", writer.load("float", largest), value)
            writer.store("float", value, largest)
        peak = writer.load("float", largest)
        writer.store("float", float_literal(0.0), total)
        with writer.loop(size) as column:
            place = writer.plus(start, column)
            value = writer.value(f"fsub float {writer.load('float', source, place)}, {peak}")
            value = writer.value(f"fmul float {value}, {beta}")
            value = writer.value(f"call float @mlgo.exp(float {value})")
            writer.store("float", value, target, place)
            value = _SUM(writer, "float", writer.load("float", total), value)
            writer.store("float", value, total)
        scale = writer.value(f"fdiv float {float_literal(1.0)}, {writer.load('float', total)}")
        with writer.loop(size) as column:
            place = writer.plus(start, column)
            value = writer.value(f"fmul float {writer.load('float', target, place)}, {scale}")
            writer.store("float", value, target, place)


_SUM: Final = instruction("fadd reassoc contract", "add")

LOWERINGS: Final[Mapping[str, Callable[[Step], None]]] = {
    "SUM": _reduction(_SUM, _NUMBERS),
    "MEAN": _reduction(_SUM, _NUMBERS),
    "REDUCE_PROD": _reduction(instruction("fmul reassoc contract", "mul"), _NUMBERS),
    "REDUCE_MAX": _reduction(maximum, _NUMBERS),
    "REDUCE_MIN": _reduction(minimum, _NUMBERS),
    "REDUCE_ANY": _reduction(instruction("", "or"), ("bool",)),
    "REDUCE_ALL": _reduction(instruction("", "and"), ("bool",)),
    "ARG_MAX": _arg_extreme("ogt", "sgt"),
    "ARG_MIN": _arg_extreme("olt", "slt"),
    "SOFTMAX": _softmax,
}

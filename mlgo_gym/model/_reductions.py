"""Operators that fold dimensions away: sums and extremes, argmax, softmax; layers and products.

A fully connected layer's weights are constants, so they are laid out for the loop that reads them;
a matrix that is given or computed lies that way already. A layer of many outputs computes up to 64
of them at once: their sums stay in registers while the loop runs over the inputs, each of which is
broadcast and multiplied by a row of the block. A layer of few outputs runs along the inputs
instead.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np

from mlgo_gym.model._elementwise import (
    Fold,
    Step,
    activate,
    instruction,
    maximum,
    minimum,
    row_major,
)
from mlgo_gym.model._graph import Tensor
from mlgo_gym.model._writer import LANES, WeightRows

_BLOCK: Final = 64
_FEW_OUTPUTS: Final = 8
_MAX_OUTPUTS: Final = 1 << 14

_Array = np.ndarray[Any, np.dtype[np.float32]]
_NUMBERS: Final = ("float32", "int32", "int64")


def _fully_connected(step: Step) -> None:
    given, weights = step.operand(0, "float32"), step.operand(1, "float32")
    if len(weights.shape) != 2:
        raise step.error(f"expected a matrix as weights, found {weights}")
    if step.integer("weights_format") != 0:
        raise step.error("expected weights in the default format, found another")
    outputs, inputs = weights.shape
    _check_count(step, outputs)
    _check_layer_shapes(step, given, inputs, outputs)
    source, target = step.source(0), step.allocate()
    constant = None if weights.data is None else (weights.values(), _constant_bias(step, outputs))
    with step.writer.loop(given.element_count // inputs) as row:
        there = step.writer.address("float32", source, step.writer.scaled(row, inputs))
        here = step.writer.address("float32", target, step.writer.scaled(row, outputs))
        if constant:
            _constant_layer(step, there, here, *constant)
        else:
            _given_layer(step, there, here, weights.shape)
    _activate_all(step, target)


def _constant_layer(step: Step, source: str, target: str, matrix: _Array, bias: _Array) -> None:
    outputs, inputs = matrix.shape
    if outputs >= _FEW_OUTPUTS:
        for start, stop in _blocks(outputs):
            block = np.ascontiguousarray(matrix[start:stop].T)
            about = _weights_of(step, block.shape)
            weights = step.scope.constant("float32", block.tobytes(), about)
            rows = WeightRows(weights, inputs, stop - start, stop - start)
            biases = step.scope.constant("float32", bias[start:stop].tobytes(), "their biases")
            step.writer.block(source, (target, start), rows, biases)
        return
    for output in range(outputs):
        place = step.writer.address("float32", target, str(output))
        about = _weights_of(step, (inputs,))
        weights = step.scope.constant("float32", matrix[output].tobytes(), about)
        first = step.writer.literal("float32", float(bias[output]))
        _dot(step, (source, place), (weights, inputs), first)


def _given_layer(step: Step, source: str, target: str, shape: tuple[int, ...]) -> None:
    """Weights that are no constants: they are read along the inputs, as they lie."""
    outputs, inputs = shape
    weights, biases = step.source(1), step.source(2) if _has_bias(step, outputs) else None
    with step.writer.loop(outputs) as output:
        first = step.writer.literal("float32", 0.0)
        if biases:
            first = step.writer.load("float32", biases, output)
        place = step.writer.address("float32", target, output)
        row = step.writer.address("float32", weights, step.writer.scaled(output, inputs))
        _dot(step, (source, place), (row, inputs), first)


def _batch_matmul(step: Step) -> None:
    given, matrix = step.operand(0, "float32"), step.operand(1, "float32")
    if step.attribute("adj_x") or step.attribute("adj_y"):
        raise step.error("expected matrices as they are, found one to be transposed")
    if len(matrix.shape) != 2 or len(given.shape) < 2:
        raise step.error(f"expected rows and one matrix, found {given.shape} and {matrix.shape}")
    inputs, outputs = matrix.shape
    _check_count(step, outputs)
    step.expect("the last dimension of the input to be", inputs, given.shape[-1])
    step.expect("the output's shape to be", (*given.shape[:-1], outputs), step.output.shape)
    step.expect("an output of type", "float32", step.output.dtype)
    source, weights, target = step.source(0), step.source(1), step.allocate()
    with step.writer.loop(given.element_count // inputs) as row:
        there = step.writer.address("float32", source, step.writer.scaled(row, inputs))
        here = step.writer.address("float32", target, step.writer.scaled(row, outputs))
        if outputs == 1:
            _dot(step, (there, here), (weights, inputs), step.writer.literal("float32", 0.0))
            return
        for start, stop in _blocks(outputs):
            block = step.writer.address("float32", weights, str(start))
            rows = WeightRows(block, inputs, stop - start, outputs)
            step.writer.block(there, (here, start), rows, None)


def _check_count(step: Step, outputs: int) -> None:
    if outputs > _MAX_OUTPUTS:
        raise step.error(f"expected at most {_MAX_OUTPUTS} outputs, found {outputs}")


def _check_layer_shapes(step: Step, given: Tensor, inputs: int, outputs: int) -> None:
    if given.element_count % inputs:
        raise step.error(f"expected rows of {inputs} inputs, found {list(given.shape)}")
    if step.integer("keep_num_dims"):
        step.expect("the last dimension of the input to be", inputs, (1, *given.shape)[-1])
        expected = [*given.shape[:-1], outputs]
    else:
        expected = [given.element_count // inputs, outputs]
    step.expect("the output's shape to be", expected, list(step.output.shape))
    step.expect("an output of type", "float32", step.output.dtype)


def _has_bias(step: Step, outputs: int) -> bool:
    if len(step.inputs) < 3 or step.inputs[2] is None:
        return False
    step.expect("a number of biases of", outputs, step.operand(2, "float32").element_count)
    return True


def _constant_bias(step: Step, outputs: int) -> _Array:
    if not _has_bias(step, outputs):
        return np.zeros(outputs, np.float32)
    tensor = step.operand(2)
    if tensor.data is None:
        raise step.error(f"expected constant biases, found {tensor}")
    bias: _Array = tensor.values().reshape(-1)
    return bias


def _blocks(outputs: int) -> list[tuple[int, int]]:
    """Ranges of at most 64 outputs, about equal and of whole vectors where possible.

    >>> _blocks(100), _blocks(33)
    ([(0, 64), (64, 100)], [(0, 33)])
    """
    count = -(-outputs // _BLOCK)
    width = -(-outputs // (count * LANES)) * LANES
    return [(start, min(start + width, outputs)) for start in range(0, outputs, width)]


def _dot(step: Step, places: tuple[str, str], row: tuple[str, int], first: str) -> None:
    total = step.writer.sum((places[0], row[0]), row[1], first)
    step.writer.store("float32", total, places[1])


def _weights_of(step: Step, shape: tuple[int, ...]) -> str:
    return f"{step.output.name}: weights, {' x '.join(map(str, shape))}"


def _activate_all(step: Step, target: str) -> None:
    if step.attribute("activation") == "none":
        return
    with step.writer.loop(step.output.element_count) as index:
        value = activate(step, step.writer.load("float32", target, index))
        step.writer.store("float32", value, target, index)


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
    "BATCH_MATMUL": _batch_matmul,
    "FULLY_CONNECTED": _fully_connected,
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

"""Fully connected layers and products with matrices, in vector form.

A layer's weights are constants, so they are laid out for the loop that reads them; a matrix that is
given or computed lies that way already. A layer of many outputs computes up to 64 of them at once:
their sums stay in registers while the loop runs over the inputs, each of which is broadcast and
multiplied by a row of the block. A layer of few outputs runs along the inputs instead. Vectors are
written as 16 floats; LLVM splits them to what the CPU has.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from mlgo_gym.native._elementwise import activate
from mlgo_gym.native._graph import Tensor
from mlgo_gym.native._ir import float_literal
from mlgo_gym.native._scope import Step

_LANES: Final = 16
_BLOCK: Final = 64
_FEW_OUTPUTS: Final = 8
_MAX_OUTPUTS: Final = 1 << 14

_Array = np.ndarray[Any, np.dtype[np.float32]]


@dataclass(frozen=True, slots=True)
class _Rows:
    """Weights in memory: for each input, a step of elements apart, those of some outputs."""

    pointer: str
    inputs: int
    width: int
    step: int


def _fully_connected(step: Step) -> None:
    given, weights = step.operand(0, "float32"), step.operand(1, "float32")
    if len(weights.shape) != 2:
        raise step.error(f"expected a matrix as weights, found {weights}")
    if step.integer("weights_format") != 0:
        raise step.error("expected weights in the default format, found another")
    outputs, inputs = weights.shape
    _check_count(step, outputs)
    _check_shapes(step, given, inputs, outputs)
    source, target = step.source(0), step.allocate()
    constant = None if weights.data is None else (weights.values(), _constant_bias(step, outputs))
    with step.writer.loop(given.element_count // inputs) as row:
        there = step.writer.address("float", source, step.writer.scaled(row, inputs))
        here = step.writer.address("float", target, step.writer.scaled(row, outputs))
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
            weights = step.scope.constant(block.tobytes())
            rows = _Rows(weights, inputs, stop - start, stop - start)
            biases = step.scope.constant(bias[start:stop].tobytes())
            _block(step, source, (target, start), rows, biases)
        return
    for output in range(outputs):
        place = step.writer.address("float", target, str(output))
        weights = step.scope.constant(matrix[output].tobytes())
        _dot(step, (source, place), (weights, inputs), float_literal(float(bias[output])))


def _given_layer(step: Step, source: str, target: str, shape: tuple[int, ...]) -> None:
    """Weights that are no constants: they are read along the inputs, as they lie."""
    outputs, inputs = shape
    weights, biases = step.source(1), step.source(2) if _has_bias(step, outputs) else None
    with step.writer.loop(outputs) as output:
        first = step.writer.load("float", biases, output) if biases else float_literal(0.0)
        place = step.writer.address("float", target, output)
        row = step.writer.address("float", weights, step.writer.scaled(output, inputs))
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
        there = step.writer.address("float", source, step.writer.scaled(row, inputs))
        here = step.writer.address("float", target, step.writer.scaled(row, outputs))
        if outputs == 1:
            _dot(step, (there, here), (weights, inputs), float_literal(0.0))
            return
        for start, stop in _blocks(outputs):
            block = step.writer.address("float", weights, str(start))
            rows = _Rows(block, inputs, stop - start, outputs)
            _block(step, there, (here, start), rows, None)


def _check_count(step: Step, outputs: int) -> None:
    if outputs > _MAX_OUTPUTS:
        raise step.error(f"expected at most {_MAX_OUTPUTS} outputs, found {outputs}")


def _check_shapes(step: Step, given: Tensor, inputs: int, outputs: int) -> None:
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
    width = -(-outputs // (count * _LANES)) * _LANES
    return [(start, min(start + width, outputs)) for start in range(0, outputs, width)]


def _pieces(width: int) -> list[tuple[int, int]]:
    """Vectors that cover a width: (first element, lanes), 16 lanes as long as they fit.

    >>> _pieces(37)
    [(0, 16), (16, 16), (32, 4), (36, 1)]
    """
    pieces, start, lanes = [], 0, _LANES
    while start < width:
        while lanes > width - start:
            lanes //= 2
        pieces.append((start, lanes))
        start += lanes
    return pieces


def _block(
    step: Step, source: str, target: tuple[str, int], rows: _Rows, biases: str | None
) -> None:
    writer = step.writer
    pieces = [(start, f"<{lanes} x float>") for start, lanes in _pieces(rows.width)]
    sums = [writer.allocate(kind) for _, kind in pieces]
    for (start, kind), total in zip(pieces, sums, strict=True):
        first = _load(step, kind, biases, str(start)) if biases else "zeroinitializer"
        writer.store(kind, first, total)
    with writer.loop(rows.inputs) as index:
        value = writer.load("float", source, index)
        row = writer.scaled(index, rows.step)
        for (start, kind), total in zip(pieces, sums, strict=True):
            weight = _load(step, kind, rows.pointer, writer.plus(row, str(start)))
            _accumulate(step, kind, total, _splat(step, value, kind), weight)
    for (start, kind), total in zip(pieces, sums, strict=True):
        place = writer.address("float", target[0], str(target[1] + start))
        writer.store(kind, writer.load(kind, total), place, alignment=4)


def _dot(step: Step, places: tuple[str, str], row: tuple[str, int], first: str) -> None:
    (source, target), (weights, inputs), writer = places, row, step.writer
    whole, rest = divmod(inputs, _LANES)
    kind = f"<{_LANES} x float>"
    total = first
    if whole:
        sums = writer.allocate(kind)
        writer.store(kind, "zeroinitializer", sums)
        with writer.loop(whole) as index:
            place = writer.scaled(index, _LANES)
            value, weight = _load(step, kind, source, place), _load(step, kind, weights, place)
            _accumulate(step, kind, sums, value, weight)
        total = _reduce(step, kind, total, writer.load(kind, sums))
    for start, lanes in _pieces(rest):
        place, kind = str(whole * _LANES + start), f"<{lanes} x float>"
        value, weight = _load(step, kind, source, place), _load(step, kind, weights, place)
        product = writer.value(f"fmul reassoc contract {kind} {value}, {weight}")
        total = _reduce(step, kind, total, product)
    writer.store("float", total, target)


def _load(step: Step, kind: str, pointer: str, offset: str) -> str:
    place = step.writer.address("float", pointer, offset)
    return step.writer.load(kind, place, alignment=4)


def _splat(step: Step, value: str, kind: str) -> str:
    first = step.writer.value(f"insertelement {kind} poison, float {value}, i64 0")
    zeros = f"{kind.replace('float', 'i32')} zeroinitializer"
    return step.writer.value(f"shufflevector {kind} {first}, {kind} poison, {zeros}")


def _accumulate(step: Step, kind: str, total: str, left: str, right: str) -> None:
    writer = step.writer
    product = writer.value(f"fmul reassoc contract {kind} {left}, {right}")
    value = writer.value(f"fadd reassoc contract {kind} {writer.load(kind, total)}, {product}")
    writer.store(kind, value, total)


def _reduce(step: Step, kind: str, start: str, values: str) -> str:
    lanes = kind[1 : kind.index(" ")]
    return step.writer.value(
        f"call reassoc contract float @llvm.vector.reduce.fadd.v{lanes}f32"
        f"(float {start}, {kind} {values})"
    )


def _activate_all(step: Step, target: str) -> None:
    if step.attribute("activation") == "none":
        return
    with step.writer.loop(step.output.element_count) as index:
        value = activate(step, step.writer.load("float", target, index))
        step.writer.store("float", value, target, index)


LOWERINGS: Final[Mapping[str, Callable[[Step], None]]] = {
    "BATCH_MATMUL": _batch_matmul,
    "FULLY_CONNECTED": _fully_connected,
}

"""Fully connected layers and products with matrices, in vector form.

A layer's weights are constants, so they are laid out for the loop that reads them; a matrix that is
given or computed lies that way already. A layer of many outputs computes up to 64 of them at once:
their sums stay in registers while the loop runs over the inputs, each of which is broadcast and
multiplied by a row of the block. A layer of few outputs runs along the inputs instead.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np

from mlgo_gym.model._elementwise import activate
from mlgo_gym.model._graph import Tensor
from mlgo_gym.model._scope import Step
from mlgo_gym.model._writer import LANES, WeightRows

_BLOCK: Final = 64
_FEW_OUTPUTS: Final = 8
_MAX_OUTPUTS: Final = 1 << 14

_Array = np.ndarray[Any, np.dtype[np.float32]]


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


LOWERINGS: Final[Mapping[str, Callable[[Step], None]]] = {
    "BATCH_MATMUL": _batch_matmul,
    "FULLY_CONNECTED": _fully_connected,
}

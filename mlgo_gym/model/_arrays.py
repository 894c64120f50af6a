"""Operators that move elements or look them up: reshape, concatenate, tile, gather, one-hot."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import numpy as np

from mlgo_gym.model._elementwise import Step, activate, broadcast_strides, row_major
from mlgo_gym.model._graph import Tensor


def _reshape(step: Step) -> None:
    given = step.operand(0)
    step.expect("elements of type", given.dtype, step.output.dtype)
    step.expect("a number of elements of", given.element_count, step.output.element_count)
    step.alias(0)


def _concatenation(step: Step) -> None:
    output = step.output
    axis = step.axis(step.integer("axis"), len(output.shape))
    operands = [step.operand(index, output.dtype) for index in range(len(step.inputs))]
    joined = sum(_along(step, operand, axis) for operand in operands)
    step.expect(f"the output's dimension {axis} to be", joined, output.shape[axis])
    _join(step, operands, axis)


def _along(step: Step, operand: Tensor, axis: int) -> int:
    """The size of an input along the axis; all else must be the output's."""
    shape = list(step.output.shape)
    if len(operand.shape) == len(shape):
        shape[axis] = operand.shape[axis]
    step.expect(f"the shape of input {operand.name!r} to be", shape, list(operand.shape))
    return shape[axis]


def _pack(step: Step) -> None:
    output = step.output
    axis = step.axis(step.integer("axis"), len(output.shape))
    operands = [step.operand(index, output.dtype) for index in range(len(step.inputs))]
    shape = [*output.shape[:axis], *output.shape[axis + 1 :]]
    for operand in operands:
        step.expect(f"the shape of input {operand.name!r} to be", shape, list(operand.shape))
    step.expect(f"the output's dimension {axis} to be", len(operands), output.shape[axis])
    _join(step, operands, axis)


def _join(step: Step, operands: list[Tensor], axis: int) -> None:
    """Copy the inputs side by side; what lies behind the axis is contiguous in all of them."""
    writer, kind = step.writer, step.output.dtype
    outer = math.prod(step.output.shape[:axis])
    row = step.output.element_count // outer
    sources = [step.source(index) for index in range(len(operands))]
    target, start = step.allocate(), 0
    for operand, source in zip(operands, sources, strict=True):
        part = operand.element_count // outer
        with writer.nest((outer, part), [(part, 1), (row, 1)]) as (there, here):
            value = activate(step, writer.load(kind, source, there))
            writer.store(kind, value, target, writer.plus(here, str(start)))
        start += part


def _transpose(step: Step) -> None:
    given, output = step.operand(0, step.output.dtype), step.output
    order = step.constant(1)
    step.expect("a permutation of", list(range(len(given.shape))), sorted(order))
    step.expect(
        "the output's shape to be", [given.shape[axis] for axis in order], list(output.shape)
    )
    strides = row_major(given.shape)
    _copy(step, output.shape, [strides[axis] for axis in order], row_major(output.shape))


def _slice(step: Step) -> None:
    given, output = step.operand(0, step.output.dtype), step.output
    begins, sizes = step.constant(1), step.constant(2)
    step.expect("a number of dimensions of", [len(given.shape)] * 2, [len(begins), len(sizes)])
    ranges = [
        range(begin, size if length == -1 else begin + length)
        for begin, length, size in zip(begins, sizes, given.shape, strict=True)
    ]
    _check_ranges(step, given, ranges)
    step.expect("the output's shape to be", [len(each) for each in ranges], list(output.shape))
    _copy_ranges(step, given, ranges)


def _strided_slice(step: Step) -> None:
    """Numpy's indexing with constants (``tensorflow/lite/kernels/strided_slice.cc``)."""
    given, output = step.operand(0, step.output.dtype), step.output
    begins, ends, strides = (step.constant(index) for index in (1, 2, 3))
    step.expect("slices of", [len(begins)] * 2, [len(ends), len(strides)])
    if step.integer("ellipsis_mask") or step.integer("offset") or 0 in strides:
        raise step.error("expected neither an ellipsis nor offsets nor strides of 0")
    ranges: list[range] = []
    shape: list[int] = []
    for number, bounds in enumerate(zip(begins, ends, strides, strict=True)):
        if _bit(step, "new_axis_mask", number):
            shape.append(1)
            continue
        if len(ranges) == len(given.shape):
            raise step.error(f"expected slices of {len(given.shape)} dimensions, found more")
        chosen = _chosen(step, number, bounds, given.shape[len(ranges)])
        ranges.append(chosen)
        if not _bit(step, "shrink_axis_mask", number):
            shape.append(len(chosen))
    ranges += [range(size) for size in given.shape[len(ranges) :]]
    _check_ranges(step, given, ranges)
    new_axes = sum(_bit(step, "new_axis_mask", number) for number in range(len(begins)))
    shape += [len(each) for each in ranges[len(begins) - new_axes :]]
    step.expect("the output's shape to be", shape, list(output.shape))
    _copy_ranges(step, given, ranges)


def _bit(step: Step, mask: str, number: int) -> bool:
    return bool(step.integer(mask) >> number & 1)


def _chosen(step: Step, number: int, bounds: tuple[int, int, int], size: int) -> range:
    """The positions along a dimension that a slice picks."""
    begin, end, stride = bounds
    if _bit(step, "shrink_axis_mask", number):
        position = step.axis(begin, size)
        return range(position, position + 1)
    first = None if _bit(step, "begin_mask", number) else begin
    last = None if _bit(step, "end_mask", number) else end
    return range(*slice(first, last, stride).indices(size))


def _check_ranges(step: Step, given: Tensor, ranges: list[range]) -> None:
    for chosen, size in zip(ranges, given.shape, strict=True):
        if not chosen or min(chosen[0], chosen[-1]) < 0 or max(chosen[0], chosen[-1]) >= size:
            raise step.error(f"expected positions of 0 to {size - 1}, found {chosen}")


def _copy_ranges(step: Step, given: Tensor, ranges: list[range]) -> None:
    strides = row_major(given.shape)
    start = sum(each[0] * stride for each, stride in zip(ranges, strides, strict=True))
    there = [each.step * stride for each, stride in zip(ranges, strides, strict=True)]
    sizes = [len(each) for each in ranges]
    _copy(step, sizes, there, row_major(tuple(sizes)), start)


def _broadcast_to(step: Step) -> None:
    given = step.operand(0, step.output.dtype)
    strides = broadcast_strides(step, given, step.output.shape)
    _copy(step, step.output.shape, strides, row_major(step.output.shape))


def _tile(step: Step) -> None:
    given, output = step.operand(0, step.output.dtype), step.output
    multiples = step.constant(1)
    step.expect("a number of multiples of", len(given.shape), len(multiples))
    expected = [size * times for size, times in zip(given.shape, multiples, strict=True)]
    step.expect("the output's shape to be", expected, list(output.shape))
    sizes, there, here = [], [], []
    for dimension, (size, times) in enumerate(zip(given.shape, multiples, strict=True)):
        stride = row_major(output.shape)[dimension]
        sizes += [times, size]
        there += [0, row_major(given.shape)[dimension]]
        here += [size * stride, stride]
    _copy(step, sizes, there, here)


def _copy(
    step: Step, sizes: Sequence[int], there: list[int], here: list[int], start: int = 0
) -> None:
    """Copy a shape's elements from where one set of strides leads to where another does."""
    writer, kind = step.writer, step.output.dtype
    source, target = step.source(0), step.allocate()
    with writer.nest(sizes, [there, here]) as (from_offset, to_offset):
        place = writer.plus(str(start), from_offset)
        writer.store(kind, writer.load(kind, source, place), target, to_offset)


def _gather(step: Step) -> None:
    given, indices = step.operand(0, step.output.dtype), step.operand(1, "int32", "int64")
    axis = step.axis(step.integer("axis"), len(given.shape))
    step.expect("a number of batch dimensions of", 0, step.integer("batch_dims"))
    shape = [*given.shape[:axis], *indices.shape, *given.shape[axis + 1 :]]
    step.expect("the output's shape to be", shape, list(step.output.shape))
    outer, inner = math.prod(given.shape[:axis]), math.prod(given.shape[axis + 1 :])
    size, count = given.shape[axis], indices.element_count
    writer, kind = step.writer, given.dtype
    sources, target = (step.source(0), step.source(1)), step.allocate()
    with writer.loop(count) as position:
        chosen = _checked_index(step, indices, sources[1], position, size)
        with writer.nest((outer, inner), [(size * inner, 1), (count * inner, 1)]) as offsets:
            there = writer.plus(offsets[0], writer.scaled(chosen, inner))
            here = writer.plus(offsets[1], writer.scaled(position, inner))
            writer.store(kind, writer.load(kind, sources[0], there), target, here)


def _checked_index(step: Step, indices: Tensor, source: str, position: str, size: int) -> str:
    """An index as ``int64``; one out of range fails the evaluation and becomes 0."""
    writer, kind = step.writer, indices.dtype
    index = writer.convert(kind, "int64", writer.load(kind, source, position))
    # A negative one is too large.
    fits = writer.compare("lt", "uint64", writer.convert("int64", "uint64", index), str(size))
    step.require(fits)
    return writer.select(fits, "int64", index, "0")


def _bucketize(step: Step) -> None:
    """How many of the boundaries, which ascend, are not above each element."""
    given, output = step.operand(0, "float32", "int32", "int64"), step.output
    boundaries = step.attribute("boundaries")
    if not isinstance(boundaries, tuple) or list(boundaries) != sorted(boundaries):
        raise step.error(f"expected ascending boundaries, found {boundaries}")
    step.expect("an output of type", "int32", output.dtype)
    step.expect("the output's shape to be", list(given.shape), list(output.shape))
    writer, kind = step.writer, given.dtype
    source, target = step.source(0), step.allocate()
    data = np.array(boundaries, np.float32).tobytes()
    table = step.scope.constant("float32", data, f"{output.name}: boundaries")
    total = writer.variable("int32")
    with writer.loop(given.element_count) as index:
        value = writer.convert(kind, "float32", writer.load(kind, source, index))
        writer.put("int32", "0", total)
        if boundaries:
            with writer.loop(len(boundaries)) as number:
                limit = writer.load("float32", table, number)
                test = writer.compare("ge", "float32", value, limit)
                more = writer.convert("test", "int32", test)
                more = writer.binary("add", "int32", writer.get("int32", total), more)
                writer.put("int32", more, total)
        writer.store("int32", writer.get("int32", total), target, index)


def _one_hot(step: Step) -> None:
    indices, output = step.operand(0, "int32", "int64"), step.output
    depths = step.constant(1)
    step.expect("a number of depths of", 1, len(depths))
    (depth,) = depths
    axis = step.integer("axis")
    axis = len(indices.shape) if axis == -1 else step.axis(axis, len(indices.shape) + 1)
    shape = [*indices.shape[:axis], depth, *indices.shape[axis:]]
    step.expect("the output's shape to be", shape, list(output.shape))
    for index in (2, 3):
        step.expect("a single value, found", 1, step.operand(index, output.dtype).element_count)
    writer, kind, source = step.writer, output.dtype, step.source(0)
    on, off = (writer.load(kind, step.source(index)) for index in (2, 3))
    target, inner = step.allocate(), math.prod(indices.shape[axis:])
    outer = indices.element_count // inner
    with writer.loop(outer) as row, writer.loop(depth) as level, writer.loop(inner) as column:
        there = writer.plus(writer.scaled(row, inner), column)
        value = writer.load(indices.dtype, source, there)
        value = writer.convert(indices.dtype, "int64", value)
        test = writer.compare("eq", "int64", value, level)
        here = writer.plus(
            writer.scaled(row, depth * inner), writer.plus(writer.scaled(level, inner), column)
        )
        value = writer.select(test, kind, on, off)
        writer.store(kind, value, target, here)


LOWERINGS: Final[Mapping[str, Callable[[Step], None]]] = {
    "BUCKETIZE": _bucketize,
    **dict.fromkeys(("RESHAPE", "SQUEEZE", "EXPAND_DIMS"), _reshape),
    "CONCATENATION": _concatenation,
    "PACK": _pack,
    "BROADCAST_TO": _broadcast_to,
    "SLICE": _slice,
    "STRIDED_SLICE": _strided_slice,
    "TILE": _tile,
    "TRANSPOSE": _transpose,
    "GATHER": _gather,
    "ONE_HOT": _one_hot,
}

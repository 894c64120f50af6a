"""Operators that move elements or look them up, each as a random step of a graph."""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np
from hypothesis import strategies as st

from tests.model.graph_operators import Operator, axis_of, has_axes, is_exact, pick
from tests.model.graphs import Sketch, Value

_MAX_ELEMENTS: Final = 2000


def reshaped(sketch: Sketch) -> None:
    value = pick(sketch)
    count = math.prod(value.shape)
    first = sketch.draw(st.sampled_from([each for each in (1, 2, 3, 5) if count % each == 0]))
    shape = sketch.draw(st.sampled_from([(count,), (first, count // first), (1, count, 1)]))
    sketch.step("RESHAPE", [value, sketch.constant(shape)], shape)


def resized(sketch: Sketch) -> None:
    """With one dimension more, or without those of 1."""
    value = pick(sketch)
    ones = [axis for axis, size in enumerate(value.shape) if size == 1]
    if ones and sketch.draw(st.booleans()):
        axes = sketch.draw(st.sets(st.sampled_from(ones), min_size=1))
        shape = [size for axis, size in enumerate(value.shape) if axis not in axes]
        sketch.step("SQUEEZE", [value], shape, ("SqueezeOptions", {"squeezeDims": sorted(axes)}))
    elif len(value.shape) < 4:
        at = sketch.draw(st.integers(0, len(value.shape)))
        shape = [*value.shape[:at], 1, *value.shape[at:]]
        sketch.step("EXPAND_DIMS", [value, sketch.constant(at)], shape, ("ExpandDimsOptions", {}))


def transposed(sketch: Sketch) -> None:
    value = pick(sketch, where=has_axes)
    order = sketch.draw(st.permutations(range(len(value.shape))))
    shape = [value.shape[axis] for axis in order]
    sketch.step("TRANSPOSE", [value, sketch.constant(order)], shape, ("TransposeOptions", {}))


def _together(values: list[Value]) -> dict[str, Any]:
    return {
        "bound": max(each.bound for each in values),
        "slack": max(each.slack for each in values),
        "is_product": any(each.is_product for each in values),
    }


def _fitting(sketch: Sketch, first: Value, axis: int | None) -> list[Value]:
    """One to three values of a shape but for an axis, the first among them."""

    def rest(value: Value) -> list[int]:
        kept = enumerate(value.shape)
        return [-1 if number == axis else size for number, size in kept]

    fitting = [
        each
        for each in sketch.values
        if each.dtype == first.dtype
        and rest(each) == rest(first)
        and (each.is_known or each.is_exact)
    ]
    found: list[Value] = sketch.draw(
        st.lists(st.sampled_from([first, *fitting]), min_size=1, max_size=3)
    )
    return found


def concatenated(sketch: Sketch) -> None:
    first = pick(sketch, where=lambda each: has_axes(each) and (each.is_known or each.is_exact))
    axis = axis_of(sketch, first)
    values = _fitting(sketch, first, axis % len(first.shape))
    shape = list(first.shape)
    shape[axis] = sum(each.shape[axis] for each in values)
    options = ("ConcatenationOptions", {"axis": axis})
    if math.prod(shape) <= _MAX_ELEMENTS:
        sketch.step("CONCATENATION", values, shape, options, **_together(values))


def packed(sketch: Sketch) -> None:
    first = pick(
        sketch, where=lambda each: len(each.shape) < 4 and (each.is_known or is_exact(each))
    )
    values = _fitting(sketch, first, None)
    axis = sketch.draw(st.integers(0, len(first.shape)))
    shape = [*first.shape[:axis], len(values), *first.shape[axis:]]
    options = ("PackOptions", {"axis": axis, "valuesCount": len(values)})
    if math.prod(shape) <= _MAX_ELEMENTS:
        sketch.step("PACK", values, shape, options, **_together(values))


def sliced(sketch: Sketch) -> None:
    value = pick(sketch, where=has_axes)
    begins = [sketch.draw(st.integers(0, size - 1)) for size in value.shape]
    sizes = [
        sketch.draw(st.integers(1, size - begin))
        for begin, size in zip(begins, value.shape, strict=True)
    ]
    spelled = [-1 if begin + size == whole else size
               for begin, size, whole in zip(begins, sizes, value.shape, strict=True)]  # fmt: skip
    inputs = [value, sketch.constant(begins), sketch.constant(spelled)]
    sketch.step("SLICE", inputs, sizes, ("SliceOptions", {}))


def strided(sketch: Sketch) -> None:
    """As numpy slices, whose shape the output has."""
    value = pick(sketch, where=has_axes)
    begins, ends, strides, masks, index = [], [], [], [0, 0, 0], []
    for axis, size in enumerate(value.shape):
        begin = sketch.draw(st.integers(0, size - 1))
        stride = sketch.draw(st.sampled_from([1, 2, -1, -2]))
        end = begin + (1 if stride > 0 else -1)
        choice = sketch.draw(st.sampled_from(["one", "rest", "all", "shrunk"]))
        begins.append(begin)
        ends.append(end)
        strides.append(1 if choice == "shrunk" else stride)
        masks[0] |= (choice == "all") << axis
        masks[1] |= (choice in {"all", "rest"}) << axis
        masks[2] |= (choice == "shrunk") << axis
        first = None if choice == "all" else begin
        last = None if choice in {"all", "rest"} or end < 0 else end
        index.append(begin if choice == "shrunk" else slice(first, last, stride))
        if end < 0 and choice == "one":
            ends[-1] = -size - 1
    shape = np.empty(value.shape)[tuple(index)].shape
    names = ("beginMask", "endMask", "shrinkAxisMask")
    constants = [sketch.constant(each) for each in (begins, ends, strides)]
    options = ("StridedSliceOptions", dict(zip(names, masks, strict=True)))
    sketch.step("STRIDED_SLICE", [value, *constants], shape, options)


def repeated(sketch: Sketch) -> None:
    value = pick(sketch, where=has_axes)
    times = [sketch.draw(st.integers(1, 3)) for _ in value.shape]
    shape = [size * each for size, each in zip(value.shape, times, strict=True)]
    if math.prod(shape) <= _MAX_ELEMENTS:
        sketch.step("TILE", [value, sketch.constant(times)], shape, ("TileOptions", {}))


def broadcast(sketch: Sketch) -> None:
    value = pick(sketch, where=lambda each: has_axes(each) and len(each.shape) < 4)
    shape = [size if size > 1 else sketch.draw(st.integers(1, 3)) for size in value.shape]
    shape = [*sketch.draw(st.lists(st.integers(1, 3), max_size=1)), *shape]
    if math.prod(shape) <= _MAX_ELEMENTS:
        inputs = [value, sketch.constant(shape)]
        sketch.step("BROADCAST_TO", inputs, shape, ("BroadcastToOptions", {}))


def gathered(sketch: Sketch) -> None:
    value = pick(sketch, where=has_axes)
    axis = axis_of(sketch, value)
    last = value.shape[axis] - 1
    indices = sketch.draw(st.lists(st.integers(0, last), min_size=1, max_size=4))
    dtype = sketch.draw(st.sampled_from(["int32", "int64"]))
    at = axis % len(value.shape)
    shape = [*value.shape[:at], len(indices), *value.shape[at + 1 :]]
    inputs = [value, sketch.constant(indices, dtype)]
    sketch.step("GATHER", inputs, shape, ("GatherOptions", {"axis": axis}))


def one_hot(sketch: Sketch) -> None:
    indices = pick(sketch, "int32", "int64", where=lambda each: len(each.shape) < 4)
    depth, axis = sketch.draw(st.integers(1, 5)), sketch.draw(st.integers(-1, len(indices.shape)))
    dtype = sketch.draw(st.sampled_from(["float32", "int32", "int64"]))
    at = len(indices.shape) if axis == -1 else axis
    shape = [*indices.shape[:at], depth, *indices.shape[at:]]
    if math.prod(shape) > _MAX_ELEMENTS:
        return
    values = [sketch.constant(depth), sketch.constant(2, dtype), sketch.constant(-1, dtype)]
    facts = {"dtype": dtype, "bound": 2.0, "is_product": False}
    if indices.dtype == "int64":  # TFLite looks at half of their bits
        facts["needs_small"] = True
    sketch.step("ONE_HOT", [indices, *values], shape, ("OneHotOptions", {"axis": axis}), **facts)


def sorted_into_buckets(sketch: Sketch) -> None:
    value = pick(sketch, where=is_exact)
    boundaries = sorted(sketch.draw(st.sets(st.integers(-40, 40), min_size=1, max_size=5)))
    options = ("BucketizeOptions", {"boundaries": [each / 8 for each in boundaries]})
    facts = {"dtype": "int32", "bound": 0.0, "is_product": False}
    sketch.step("BUCKETIZE", [value], value.shape, options, **facts)


MOVING: Final[tuple[Operator, ...]] = (
    reshaped, resized, transposed, concatenated, packed, sliced, strided, repeated, broadcast,
    gathered, one_hot, sorted_into_buckets,
)  # fmt: skip

"""Operators that compute, each as a random step of a graph."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

import numpy as np
from hypothesis import strategies as st

from tests.model.graphs import ANYTHING, ROUNDING, Shape, Sketch, Value

Operator = Callable[[Sketch], None]

Condition = Callable[[Value], bool]
FLOAT: Final = ("float32",)
NUMBERS: Final = ("float32", "int32", "int64")


def pick(sketch: Sketch, *dtypes: str, where: Condition = lambda _: True) -> Value:
    """A value of these types; where there is none, a constant for it."""
    found = [each for each in sketch.values if each.dtype in (dtypes or NUMBERS) and where(each)]
    if found:
        return sketch.draw(st.sampled_from(found))  # type: ignore[no-any-return]
    if dtypes == ("bool",):
        return sketch.constant([True, False, True], "bool")
    return sketch.constant(
        sketch.draw(st.lists(st.integers(-3, 3), min_size=3, max_size=3)), dtypes[0]
    )


def is_exact(value: Value) -> bool:
    return value.is_exact


def is_known(value: Value) -> bool:
    return value.is_known


def axis_of(sketch: Sketch, value: Value) -> int:
    """An axis, at times counted from the end; tensors without dimensions have been left out."""
    rank = len(value.shape)
    return int(sketch.draw(st.integers(-rank, rank - 1)))


def has_axes(value: Value) -> bool:
    return bool(value.shape)


def activation(sketch: Sketch, value_type: str) -> dict[str, int]:
    names = ["NONE", "RELU", "RELU_N1_TO_1", "RELU6"] if value_type == "float32" else ["NONE"]
    name = sketch.draw(st.sampled_from(names))
    return {"fusedActivationFunction": getattr(sketch.schema.ActivationFunctionType, name)}


def partner(sketch: Sketch, first: Value, where: Condition) -> tuple[Value, Shape]:
    """A value of the same type that fits by broadcasting, and the shape of both together."""

    def fits(other: Value) -> bool:
        pairs = zip(reversed(first.shape), reversed(other.shape), strict=False)
        return (
            other.dtype == first.dtype
            and where(other)
            and all(a == b or 1 in {a, b} for a, b in pairs)
        )

    found = [each for each in sketch.values if fits(each)]
    if sketch.draw(st.booleans()) or not found:
        keep = sketch.draw(st.integers(0, len(first.shape)))
        shape = [sketch.draw(st.sampled_from([1, size])) for size in first.shape[keep:]]
        constant = sketch.weights(tuple(shape)) if first.dtype == "float32" else None
        found = [constant or sketch.constant(np.full(shape, 3), first.dtype)]
    second: Value = sketch.draw(st.sampled_from(found))
    return second, np.broadcast_shapes(first.shape, second.shape)


def unary_exact(sketch: Sketch) -> None:
    """The same to the bit, however large."""
    kinds = ["ABS", "NEG", "RELU", "RELU6", "RELU_N1_TO_1", "LEAKY_RELU"]
    kind = sketch.draw(st.sampled_from(kinds))
    value = pick(sketch, "float32", where=lambda each: each.is_exact or each.is_known)
    options = ("LeakyReluOptions", {"alpha": 0.25}) if kind == "LEAKY_RELU" else None
    sketch.step(kind, [value], value.shape, options)


def unary_jumping(sketch: Sketch) -> None:
    """Where a bit decides, values must be the same to the bit before."""
    kind = sketch.draw(st.sampled_from(["FLOOR", "CEIL", "SIGN"]))
    value = pick(sketch, "float32", where=is_exact)
    sketch.step(kind, [value], value.shape, bound=value.bound + 1)


def unary_rounded(sketch: Sketch) -> None:
    kind = sketch.draw(st.sampled_from(["TANH", "LOGISTIC", "EXP"]))
    value = pick(sketch, "float32", where=lambda each: each.bound < 20)
    bound = math.exp(value.bound) if kind == "EXP" else 1.0
    slack = (2 * value.slack + 5 * ROUNDING) * bound
    sketch.step(kind, [value], value.shape, bound=bound, slack=slack, is_product=True)


def unary_steep(sketch: Sketch) -> None:
    """Infinitely steep somewhere, or not a number; zeros that are computed may have either sign."""
    kind = sketch.draw(st.sampled_from(["SQRT", "RSQRT", "LOG", "SQUARE"]))
    may_be = sketch.inputs if kind == "RSQRT" else sketch.values
    value = pick(sketch, "float32", where=lambda each: each.is_exact and each in may_be)
    known: dict[str, Any] = {"bound": ANYTHING, "is_product": True}
    known |= {"needs_small": True} if kind == "SQUARE" else {"slack": ANYTHING}
    sketch.step(kind, [value], value.shape, **known)


def added(sketch: Sketch) -> None:
    kind = sketch.draw(st.sampled_from(["ADD", "SUB"]))
    first = pick(sketch, where=is_known)
    second, shape = partner(sketch, first, is_known)
    bound = first.bound + second.bound
    slack = first.slack + second.slack
    if slack or first.is_product or second.is_product:
        slack += ROUNDING * bound
    if first.dtype != "float32":
        slack = 0.0
    options = (f"{kind.capitalize()}Options", activation(sketch, first.dtype))
    known = {"bound": bound, "slack": slack, "is_product": False}
    sketch.step(kind, [first, second], shape, options, **known)


def multiplied(sketch: Sketch) -> None:
    first = pick(sketch, where=is_known)
    second, shape = partner(sketch, first, is_known)
    bound = first.bound * second.bound
    slack = first.slack * second.bound + second.slack * first.bound + first.slack * second.slack
    if slack:
        slack += ROUNDING * bound
    options = ("MulOptions", activation(sketch, first.dtype))
    bound = bound if bound < 1e6 else ANYTHING
    if not math.isfinite(bound) and slack:
        return
    known = {"bound": bound, "slack": slack, "is_product": True, "needs_small": True}
    sketch.step("MUL", [first, second], shape, options, **known)


def divided(sketch: Sketch) -> None:
    """By what is not 0: infinities are not the same in both."""
    value = pick(sketch, "float32", "int32", where=is_exact)
    divisor = sketch.constant(sketch.draw(st.sampled_from([1, 2, -3, 7])), value.dtype)
    options = ("DivOptions", activation(sketch, value.dtype))
    known = {"is_product": True, "needs_small": True}
    sketch.step("DIV", [value, divisor], value.shape, options, **known)


def extreme_of_two(sketch: Sketch) -> None:
    kind = sketch.draw(st.sampled_from(["MAXIMUM", "MINIMUM"]))
    first = pick(sketch, where=is_known)
    second, shape = partner(sketch, first, is_known)
    known = {
        "bound": max(first.bound, second.bound),
        "slack": max(first.slack, second.slack),
        "is_product": first.is_product or second.is_product,
    }
    sketch.step(kind, [first, second], shape, ("MaximumMinimumOptions", {}), **known)


def compared(sketch: Sketch) -> None:
    kinds = ["LESS", "LESS_EQUAL", "GREATER", "GREATER_EQUAL", "EQUAL", "NOT_EQUAL"]
    kind = sketch.draw(st.sampled_from(kinds))
    first = pick(sketch, where=is_exact)
    second, shape = partner(sketch, first, is_exact)
    sketch.step(kind, [first, second], shape, dtype="bool", is_product=False)


def logical(sketch: Sketch) -> None:
    kind = sketch.draw(st.sampled_from(["LOGICAL_AND", "LOGICAL_OR", "LOGICAL_NOT"]))
    value = pick(sketch, "bool")
    inputs = [value] if kind == "LOGICAL_NOT" else [value, value]
    if kind != "LOGICAL_NOT":
        inputs[1] = pick(sketch, "bool", where=lambda each: each.shape == value.shape)
        if inputs[1].shape != value.shape:
            return
    sketch.step(kind, inputs, value.shape)


def selected(sketch: Sketch) -> None:
    first = pick(sketch)
    second, shape = partner(sketch, first, lambda _: True)
    condition = sketch.constant(
        np.arange(shape[-1] if shape else 1).reshape((-1,) if shape else ()) % 3 == 1, "bool"
    )
    known = [
        each
        for each in sketch.values
        if each.dtype == "bool" and each.shape in {shape, shape[-1:], ()}
    ]
    condition = sketch.draw(st.sampled_from([condition, *known]))
    if not (first.is_known and second.is_known) and not (first.is_exact and second.is_exact):
        return
    facts = {
        "bound": max(first.bound, second.bound),
        "slack": max(first.slack, second.slack),
        "is_product": first.is_product or second.is_product,
        "dtype": first.dtype,
    }
    sketch.step("SELECT_V2", [condition, first, second], shape, ("SelectV2Options", {}), **facts)


def cast(sketch: Sketch) -> None:
    """C leaves open what becomes of a float that an integer cannot hold."""
    value = pick(sketch, *NUMBERS, "bool", where=lambda each: each.is_exact and each.is_known)
    dtype = sketch.draw(st.sampled_from([*NUMBERS, "bool"]))
    leaves_floats = value.dtype == "float32" and dtype in {"int32", "int64"}
    known: dict[str, Any] = {"needs_small": value.needs_small or leaves_floats}
    if dtype == "float32" and value.dtype in {"int32", "int64"}:
        known["bound"] = ANYTHING
    elif dtype == "float32" and value.dtype == "bool":
        known["bound"] = 1.0
    sketch.step("CAST", [value], value.shape, ("CastOptions", {}), dtype=dtype, **known)


def total(sketch: Sketch) -> None:
    """Sums, means, extremes, and whether any or all are true."""
    kinds = ["SUM", "MEAN", "REDUCE_MAX", "REDUCE_MIN", "REDUCE_ANY", "REDUCE_ALL"]
    kind = sketch.draw(st.sampled_from(kinds))
    dtypes = {"MEAN": FLOAT, "REDUCE_ANY": ("bool",), "REDUCE_ALL": ("bool",)}.get(kind, NUMBERS)
    value = pick(sketch, *dtypes, where=lambda each: has_axes(each) and is_known(each))
    axes = sketch.draw(st.sets(st.integers(0, len(value.shape) - 1), min_size=1))
    keep = sketch.draw(st.booleans())
    shape = [1 if axis in axes else size for axis, size in enumerate(value.shape)]
    if not keep:
        shape = [size for axis, size in enumerate(value.shape) if axis not in axes]
    count = math.prod(size for axis, size in enumerate(value.shape) if axis in axes)
    known: dict[str, Any] = {}
    if kind in {"SUM", "MEAN"} and value.dtype == "float32":
        share = 1 if kind == "MEAN" else count
        known = {
            "bound": value.bound * share,
            "slack": (value.slack + 3 * ROUNDING * value.bound) * share,
        }
    signed = [axis - len(value.shape) * sketch.draw(st.integers(0, 1)) for axis in sorted(axes)]
    options = ("ReducerOptions", {"keepDims": keep})
    sketch.step(kind, [value, sketch.constant(signed)], shape, options, **known)


def arg_extreme(sketch: Sketch) -> None:
    kind = sketch.draw(st.sampled_from(["ARG_MAX", "ARG_MIN"]))
    value = pick(sketch, "float32", "int32", where=lambda each: is_exact(each) and has_axes(each))
    axis = axis_of(sketch, value)
    dtype = sketch.draw(st.sampled_from(["int32", "int64"]))
    shape = np.delete(value.shape, axis).tolist()
    name = "ArgMaxOptions" if kind == "ARG_MAX" else "ArgMinOptions"
    output_type = getattr(sketch.schema.TensorType, dtype.upper())
    facts = {"dtype": dtype, "bound": 0.0, "is_product": False}
    options = (name, {"outputType": output_type})
    sketch.step(kind, [value, sketch.constant(axis)], shape, options, **facts)


def softmax(sketch: Sketch) -> None:
    value = pick(sketch, "float32", where=lambda each: is_known(each) and has_axes(each))
    beta = sketch.draw(st.sampled_from([1.0, 0.5]))
    slack = 2 * value.slack + 5 * ROUNDING * (1 + value.bound)
    known = {"bound": 1.0, "slack": slack, "is_product": True}
    sketch.step("SOFTMAX", [value], value.shape, ("SoftmaxOptions", {"beta": beta}), **known)


def _products(first: Value, second: Value, terms: int, bias: float) -> dict[str, Any]:
    bound = terms * first.bound * second.bound + bias
    slack = terms * (first.slack * second.bound + second.slack * first.bound) + 3 * ROUNDING * bound
    return {"bound": bound, "slack": slack, "is_product": True}


def is_matrix(value: Value) -> bool:
    return is_known(value) and len(value.shape) == 2


def _factors(sketch: Sketch, axis: int, sizes: list[int]) -> tuple[Value, Value] | None:
    """A value, if there is one, and a matrix of which this axis is as long as the value's last."""
    value = pick(sketch, "float32", where=lambda each: is_known(each) and len(each.shape) >= 2)
    if len(value.shape) < 2:
        return None
    terms = value.shape[-1]
    given = [each for each in sketch.values if is_matrix(each) and each.shape[axis] == terms]
    given = [each for each in given if each.dtype == "float32"]
    outputs = sketch.draw(st.sampled_from(sizes))
    made = sketch.weights((outputs, terms) if axis else (terms, outputs))
    return value, sketch.draw(st.sampled_from([made, *given]))


def fully_connected(sketch: Sketch) -> None:
    if (factors := _factors(sketch, 1, [1, 3, 8, 17, 65])) is None:
        return
    value, weights = factors
    bias = sketch.weights(weights.shape[:1]) if sketch.draw(st.booleans()) else None
    keep = sketch.draw(st.booleans())
    rows = value.shape[:-1] if keep else (math.prod(value.shape[:-1]),)
    options = activation(sketch, "float32") | {"keepNumDims": keep}
    known = _products(value, weights, value.shape[-1], 2.0 if bias else 0.0)
    shape = (*rows, weights.shape[0])
    inputs = [value, weights, bias]
    sketch.step("FULLY_CONNECTED", inputs, shape, ("FullyConnectedOptions", options), **known)


def matmul(sketch: Sketch) -> None:
    if (factors := _factors(sketch, 0, [1, 5, 33, 70])) is None:
        return
    value, matrix = factors
    known = _products(value, matrix, value.shape[-1], 0.0)
    shape = (*value.shape[:-1], matrix.shape[1])
    sketch.step("BATCH_MATMUL", [value, matrix], shape, ("BatchMatMulOptions", {}), **known)


COMPUTING: Final[tuple[Operator, ...]] = (
    unary_exact, unary_jumping, unary_rounded, unary_steep, added, added, multiplied, divided,
    extreme_of_two, compared, logical, selected, cast, total, total, arg_extreme, softmax,
    fully_connected, fully_connected, matmul,
)  # fmt: skip

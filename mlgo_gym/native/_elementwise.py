"""Operators element by element, inputs broadcast as numpy does; integers wrap around."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from mlgo_gym.native._graph import Tensor
from mlgo_gym.native._ir import ELEMENT_TYPES, FunctionWriter, float_literal, literal
from mlgo_gym.native._scope import Step, row_major

_NUMBERS: Final = ("float32", "int32", "int64")
_Compute = Callable[[Step, str, list[str]], str]
Fold = Callable[[FunctionWriter, str, str, str], str]
"""Makes one operand of two, of a kind."""


def broadcast_strides(step: Step, tensor: Tensor, shape: tuple[int, ...]) -> list[int]:
    """The steps of a tensor along the dimensions of a shape that it is broadcast to."""
    missing = len(shape) - len(tensor.shape)
    padded = (1,) * missing + tensor.shape
    if missing < 0 or any(a not in {1, b} for a, b in zip(padded, shape, strict=True)):
        raise step.error(
            f"expected input {tensor.name!r} to fit the shape {list(shape)}, "
            f"found {list(tensor.shape)}"
        )
    strides = [0] * missing + row_major(tensor.shape)
    return [0 if size == 1 else stride for size, stride in zip(padded, strides, strict=True)]


def _elementwise(arity: int, dtypes: tuple[str, ...], compute: _Compute) -> Callable[[Step], None]:
    """A lowering whose inputs all have one type."""

    def lower(step: Step) -> None:
        operands = [step.operand(index, *dtypes) for index in range(arity)]
        for operand in operands[1:]:
            step.expect(
                f"the type of input {operand.name!r} to be", operands[0].dtype, operand.dtype
            )
        step.expect("a number of inputs of", arity, len(step.inputs))
        _loop(step, operands, compute)

    return lower


def _loop(step: Step, operands: list[Tensor], compute: _Compute) -> None:
    writer, output = step.writer, step.output
    _check_shape(step, operands)
    strides = [broadcast_strides(step, operand, output.shape) for operand in operands]
    sources = [step.source(index) for index in range(len(operands))]
    target = step.allocate()
    with writer.nest(output.shape, [row_major(output.shape), *strides]) as (there, *offsets):
        values = [
            writer.load(ELEMENT_TYPES[operand.dtype], source, offset)
            for operand, source, offset in zip(operands, sources, offsets, strict=True)
        ]
        kind = ELEMENT_TYPES[operands[-1].dtype]
        value = activate(step, compute(step, kind, values))
        writer.store(ELEMENT_TYPES[output.dtype], value, target, there)


def _check_shape(step: Step, operands: list[Tensor]) -> None:
    rank = max(len(operand.shape) for operand in operands)
    padded = [(1,) * (rank - len(each.shape)) + each.shape for each in operands]
    expected = tuple(max(sizes) for sizes in zip(*padded, strict=True))
    step.expect("the output's shape to be", list(expected), list(step.output.shape))


def _same_type(compute: _Compute) -> _Compute:
    def checked(step: Step, kind: str, values: list[str]) -> str:
        step.expect("elements of type", kind, ELEMENT_TYPES[step.output.dtype])
        return compute(step, kind, values)

    return checked


def activate(step: Step, value: str) -> str:
    """Apply the operator's fused activation, if it has one."""
    name = step.attribute("activation", "none")
    if name == "none":
        return value
    if name not in ACTIVATIONS or step.output.dtype != "float32":
        raise step.error(f"expected no activation, found {name} of {step.output.dtype}")
    return ACTIVATIONS[str(name)](step, "float", [value])


def instruction(float_form: str, integer_form: str) -> Fold:
    """What an instruction of two operands makes of them."""

    def fold(writer: FunctionWriter, kind: str, left: str, right: str) -> str:
        form = float_form if kind == "float" else integer_form
        return writer.value(f"{form} {kind} {left}, {right}")

    return fold


def _written(for_floats: str, for_integers: str = "") -> _Compute:
    """An instruction with the places of its operands in it."""

    def compute(step: Step, kind: str, values: list[str]) -> str:
        form = for_floats if kind == "float" else for_integers
        return step.writer.value(form.format(*values, kind=kind))

    return _same_type(compute)


def _intrinsic(name: str) -> _Compute:
    return _written(f"call float @{name}(float {{0}})")


def _divide(step: Step, kind: str, values: list[str]) -> str:
    writer, (left, right) = step.writer, values
    if kind == "float":
        return writer.value(f"fdiv float {left}, {right}")
    # Division by zero and the one quotient that overflows trap on many CPUs.
    fits = writer.value(f"icmp ne {kind} {right}, 0")
    step.require(fits)
    is_minus_one = writer.value(f"icmp eq {kind} {right}, -1")
    unsafe = writer.value(f"or i1 {is_minus_one}, {writer.value(f'xor i1 {fits}, true')}")
    divisor = writer.value(f"select i1 {unsafe}, {kind} 1, {kind} {right}")
    quotient = writer.value(f"sdiv {kind} {left}, {divisor}")
    negated = writer.value(f"sub {kind} 0, {left}")
    return writer.value(f"select i1 {is_minus_one}, {kind} {negated}, {kind} {quotient}")


def _rsqrt(step: Step, _kind: str, values: list[str]) -> str:
    root = step.writer.value(f"call float @llvm.sqrt.f32(float {values[0]})")
    return step.writer.value(f"fdiv float {float_literal(1.0)}, {root}")


def _compare_form(kind: str, for_floats: str, for_integers: str) -> str:
    return f"fcmp {for_floats}" if kind == "float" else f"icmp {for_integers}"


def _extreme(for_floats: str, for_integers: str) -> Fold:
    """The right of two values where it is beyond the left; the left if one is NaN or both equal."""

    def choose(writer: FunctionWriter, kind: str, left: str, right: str) -> str:
        form = _compare_form(kind, for_floats, for_integers)
        test = writer.value(f"{form} {kind} {right}, {left}")
        return writer.value(f"select i1 {test}, {kind} {right}, {kind} {left}")

    return choose


def _fold(of_two: Fold) -> _Compute:
    return _same_type(lambda step, kind, values: of_two(step.writer, kind, *values))


maximum: Final = _extreme("ogt", "sgt")
minimum: Final = _extreme("olt", "slt")


def _compare(for_floats: str, for_integers: str) -> _Compute:
    def compute(step: Step, kind: str, values: list[str]) -> str:
        step.expect("an output of type", "bool", step.output.dtype)
        form = _compare_form(kind, for_floats, for_integers)
        test = step.writer.value(f"{form} {kind} {values[0]}, {values[1]}")
        return step.writer.value(f"zext i1 {test} to i8")

    return compute


def _clamp(low: float, high: float | None) -> _Compute:
    def compute(step: Step, _kind: str, values: list[str]) -> str:
        value = maximum(step.writer, "float", values[0], float_literal(low))
        if high is not None:
            value = minimum(step.writer, "float", value, float_literal(high))
        return value

    return _same_type(compute)


def _leaky_relu(step: Step, _kind: str, values: list[str]) -> str:
    alpha = float_literal(step.real("alpha"))
    scaled = step.writer.value(f"fmul float {values[0]}, {alpha}")
    test = step.writer.value(f"fcmp ogt float {values[0]}, {float_literal(0.0)}")
    return step.writer.value(f"select i1 {test}, float {values[0]}, float {scaled}")


def _squared_difference(step: Step, kind: str, values: list[str]) -> str:
    difference = _SUBTRACT(step.writer, kind, *values)
    return _MULTIPLY(step.writer, kind, difference, difference)


def _sign(step: Step, kind: str, values: list[str]) -> str:
    """-1, 0 or 1; NaN and both zeros stay what they are."""
    writer, (value,) = step.writer, values
    zero, one, less = (literal(kind, number) for number in (0, 1, -1))
    above = writer.value(f"{_compare_form(kind, 'ogt', 'sgt')} {kind} {value}, {zero}")
    below = writer.value(f"{_compare_form(kind, 'olt', 'slt')} {kind} {value}, {zero}")
    result = writer.value(f"select i1 {below}, {kind} {less}, {kind} {value}")
    return writer.value(f"select i1 {above}, {kind} {one}, {kind} {result}")


def _cast(step: Step) -> None:
    step.expect("a number of inputs of", 1, len(step.inputs))
    operand = step.operand(0)
    _loop(step, [operand], _convert)


def _convert(step: Step, kind: str, values: list[str]) -> str:
    """C's conversions; a float outside an integer's range becomes the nearest integer, NaN 0."""
    writer, (value,), target = step.writer, values, ELEMENT_TYPES[step.output.dtype]
    if target == kind:
        return value
    if target == "i8":
        test = writer.value(
            f"{_compare_form(kind, 'une', 'ne')} {kind} {value}, {literal(kind, 0)}"
        )
        return writer.value(f"zext i1 {test} to i8")
    if kind == "float":
        return writer.value(f"call {target} @llvm.fptosi.sat.{target}.f32(float {value})")
    if target == "float":
        return writer.value(f"{'uitofp' if kind == 'i8' else 'sitofp'} {kind} {value} to float")
    form = "trunc" if target == "i32" and kind == "i64" else "zext" if kind == "i8" else "sext"
    return writer.value(f"{form} {kind} {value} to {target}")


def _select(step: Step) -> None:
    condition, *choices = [step.operand(0, "bool"), step.operand(1), step.operand(2)]
    step.expect("the type of both choices to be", step.output.dtype, choices[0].dtype)
    step.expect("the type of both choices to be", step.output.dtype, choices[1].dtype)
    operands = [condition, *choices]
    if step.kind == "SELECT" and len(condition.shape) == 1 and len(step.output.shape) > 1:
        raise step.error("expected a condition of the output's shape, found one of rank 1")
    _loop(step, operands, _choose)


def _choose(step: Step, kind: str, values: list[str]) -> str:
    test = step.writer.value(f"icmp ne i8 {values[0]}, 0")
    return step.writer.value(f"select i1 {test}, {kind} {values[1]}, {kind} {values[2]}")


_FLOAT: Final = ("float32",)
_BOOL: Final = ("bool",)
_TANH: Final = _intrinsic("mlgo.tanh")
_MULTIPLY: Final = instruction("fmul", "mul")
_SUBTRACT: Final = instruction("fsub", "sub")
_ABSOLUTE: Final = _written(
    "call float @llvm.fabs.f32(float {0})", "call {kind} @llvm.abs.{kind}({kind} {0}, i1 false)"
)

ACTIVATIONS: Final[Mapping[str, _Compute]] = {
    "relu": _clamp(0.0, None),
    "relu6": _clamp(0.0, 6.0),
    "relu_n1_to_1": _clamp(-1.0, 1.0),
    "tanh": _TANH,
}
"""What can be fused into an operator."""

LOWERINGS: Final[Mapping[str, Callable[[Step], None]]] = {
    "ADD": _elementwise(2, _NUMBERS, _fold(instruction("fadd contract", "add"))),
    "SUB": _elementwise(2, _NUMBERS, _fold(instruction("fsub contract", "sub"))),
    "MUL": _elementwise(2, _NUMBERS, _fold(instruction("fmul contract", "mul"))),
    "DIV": _elementwise(2, _NUMBERS, _same_type(_divide)),
    "MAXIMUM": _elementwise(2, _NUMBERS, _fold(maximum)),
    "MINIMUM": _elementwise(2, _NUMBERS, _fold(minimum)),
    "SQUARED_DIFFERENCE": _elementwise(2, _NUMBERS, _same_type(_squared_difference)),
    "NEG": _elementwise(1, _NUMBERS, _written("fneg float {0}", "sub {kind} 0, {0}")),
    "ABS": _elementwise(1, _NUMBERS, _ABSOLUTE),
    "SQUARE": _elementwise(1, _NUMBERS, _written("fmul float {0}, {0}", "mul {kind} {0}, {0}")),
    "SIGN": _elementwise(1, ("float32", "int32"), _same_type(_sign)),
    "SQRT": _elementwise(1, _FLOAT, _intrinsic("llvm.sqrt.f32")),
    "RSQRT": _elementwise(1, _FLOAT, _same_type(_rsqrt)),
    "FLOOR": _elementwise(1, _FLOAT, _intrinsic("llvm.floor.f32")),
    "CEIL": _elementwise(1, _FLOAT, _intrinsic("llvm.ceil.f32")),
    "EXP": _elementwise(1, _FLOAT, _intrinsic("mlgo.exp")),
    "LOG": _elementwise(1, _FLOAT, _intrinsic("mlgo.log")),
    "TANH": _elementwise(1, _FLOAT, _TANH),
    "LOGISTIC": _elementwise(1, _FLOAT, _intrinsic("mlgo.logistic")),
    "RELU": _elementwise(1, _FLOAT, ACTIVATIONS["relu"]),
    "RELU6": _elementwise(1, _FLOAT, ACTIVATIONS["relu6"]),
    "RELU_N1_TO_1": _elementwise(1, _FLOAT, ACTIVATIONS["relu_n1_to_1"]),
    "LEAKY_RELU": _elementwise(1, _FLOAT, _same_type(_leaky_relu)),
    "LESS": _elementwise(2, _NUMBERS, _compare("olt", "slt")),
    "LESS_EQUAL": _elementwise(2, _NUMBERS, _compare("ole", "sle")),
    "GREATER": _elementwise(2, _NUMBERS, _compare("ogt", "sgt")),
    "GREATER_EQUAL": _elementwise(2, _NUMBERS, _compare("oge", "sge")),
    "EQUAL": _elementwise(2, (*_NUMBERS, "bool"), _compare("oeq", "eq")),
    "NOT_EQUAL": _elementwise(2, (*_NUMBERS, "bool"), _compare("une", "ne")),
    "LOGICAL_AND": _elementwise(2, _BOOL, _fold(instruction("", "and"))),
    "LOGICAL_OR": _elementwise(2, _BOOL, _fold(instruction("", "or"))),
    "LOGICAL_NOT": _elementwise(1, _BOOL, _written("", "xor i8 {0}, 1")),
    "CAST": _cast,
    "SELECT": _select,
    "SELECT_V2": _select,
}

"""Operators element by element, and the places of tensors and errors of all lowerings.

Inputs are broadcast as numpy does; integers wrap around.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from mlgo_gym.base import ModelError
from mlgo_gym.model._graph import DTYPES, MAX_RANK, Attribute, Graph, Operator, Port, Tensor
from mlgo_gym.model._writer import ALIGNMENT, FLOATS, Writer

MAX_STACK_BYTES: Final = 1 << 20
"""The most that intermediate results may take of the caller's stack: 1 MiB."""

MAX_CONSTANT_BYTES: Final = 1 << 24
"""The most that all weights together may take: 16 MiB."""

MAX_PORT_BYTES: Final = 1 << 24
"""The most that all inputs, or all outputs, may take together: 16 MiB."""

MAX_LINES: Final = 1 << 16
"""How long the function may be, in lines of LLVM IR or of C."""

MAX_INSTRUCTIONS: Final = 1 << 26
"""How many instructions of LLVM IR one evaluation may run through: less than 100 ms."""

_MAX_PARAMETERS: Final = 2 * MAX_RANK
_LIFTED: Final = "; TFLite takes more (--mode under-training)"
_NUMBERS: Final = ("float32", "int32", "int64")
_ORDERED: Final = tuple(dtype for dtype in DTYPES if dtype != "bool")

Fold = Callable[[Writer, str, str, str], str]
"""Makes one operand of two, of a kind."""

_FLOAT: Final = ("float32",)
_BOOL: Final = ("bool",)


class Scope:
    """The function that is written, and where its tensors live."""

    def __init__(self, graph: Graph, writer: Writer) -> None:
        self.graph: Final = graph
        for what, ports in (("inputs", graph.inputs), ("outputs", graph.outputs)):
            self._check_ports(what, ports)
        self.writer: Final = writer
        self.pointers: Final[dict[int, str]] = {}
        self._stack_bytes = 0
        self._constant_bytes = 0

    def pointer(self, tensor: int) -> str:
        """Return the place of a tensor; constants are placed when they are first needed."""
        if tensor not in self.pointers:
            described = self.graph.tensors[tensor]
            self.pointers[tensor] = self.constant(
                described.dtype, described.data or b"", described.name
            )
        return self.pointers[tensor]

    def constant(self, dtype: str, data: bytes, about: str) -> str:
        """Place elements in the module's read-only data; hostile files may share theirs."""
        self._constant_bytes += len(data)
        if self._constant_bytes > MAX_CONSTANT_BYTES:
            raise ModelError(
                self.graph.source,
                f"expected constants of at most {MAX_CONSTANT_BYTES} bytes, "
                f"found {self._constant_bytes}{_LIFTED}",
            )
        return self.writer.constant(dtype, data, about)

    def allocate(self, tensor: int) -> str:
        """Reserve stack for a tensor."""
        described = self.graph.tensors[tensor]
        size_bytes = -(-described.size_bytes // ALIGNMENT) * ALIGNMENT
        self._stack_bytes += size_bytes
        if self._stack_bytes > MAX_STACK_BYTES:
            raise ModelError(
                self.graph.source,
                f"tensor {described.name!r}: expected intermediate results of at most "
                f"{MAX_STACK_BYTES} bytes, found {self._stack_bytes}{_LIFTED}",
            )
        pointer = self.writer.scratch(described.dtype, size_bytes)
        self.pointers[tensor] = pointer
        return pointer

    def check(self) -> None:
        """See that what is written so far is neither too long nor takes too long."""
        for what, limit, found in (
            (self.writer.LINES, MAX_LINES, self.writer.length),
            ("instructions an evaluation", MAX_INSTRUCTIONS, self.writer.evaluated),
        ):
            if found > limit:
                raise ModelError(
                    self.graph.source, f"expected at most {limit} {what}, found {found}{_LIFTED}"
                )

    def _check_ports(self, what: str, ports: Sequence[Port]) -> None:
        tensors = [self.graph.tensors[port.tensor] for port in ports]
        for port, tensor in zip(ports, tensors, strict=True):
            if not tensor.element_count:
                raise ModelError(
                    self.graph.source, f"input or output {port.name!r}: expected elements"
                )
        size_bytes = sum(each.size_bytes for each in tensors)
        if size_bytes > MAX_PORT_BYTES:
            raise ModelError(
                self.graph.source,
                f"expected {what} of at most {MAX_PORT_BYTES} bytes, found {size_bytes}{_LIFTED}",
            )


class Step:
    """One operator that is being lowered; an input that is left out is ``None``."""

    def __init__(self, scope: Scope, number: int, operator: Operator) -> None:
        self.scope: Final = scope
        self.writer: Final = scope.writer
        self._number = number
        self._operator = operator
        tensors = scope.graph.tensors
        if len(operator.outputs) != 1:
            raise self.error(f"expected 1 output, found {len(operator.outputs)}")
        self.inputs: Final[tuple[Tensor | None, ...]] = tuple(
            None if each == -1 else tensors[each] for each in operator.inputs
        )
        self.output: Final = tensors[operator.outputs[0]]
        if not self.output.element_count:
            raise self.error("expected elements")

    def error(self, message: str) -> ModelError:
        """An error that names file, operator and tensor."""
        tensors = self.scope.graph.tensors
        names = ", ".join(repr(tensors[each].name) for each in self._operator.outputs)
        return ModelError(
            self.scope.graph.source,
            f"operator {self._number} ({self._operator.kind}) of tensor {names}: {message}",
        )

    def attribute(self, name: str, default: Attribute = 0) -> Attribute:
        """One of the operator's settings, or what stands for one that its kind does not have."""
        return self._operator.attributes.get(name, default)

    def integer(self, name: str) -> int:
        """One of the operator's settings that is a whole number."""
        value = self._operator.attributes[name]
        if not isinstance(value, int):
            raise self.error(f"expected a whole number as {name}, found {value!r}")
        return value

    def real(self, name: str) -> float:
        """One of the operator's settings that is a number."""
        value = self._operator.attributes[name]
        if not isinstance(value, int | float):
            raise self.error(f"expected a number as {name}, found {value!r}")
        return value

    @property
    def kind(self) -> str:
        """TFLite's name of the operator."""
        return self._operator.kind

    def operand(self, index: int, *dtypes: str) -> Tensor:
        """Input ``index``, which must be there, have elements and be of one of some types."""
        tensor = self.inputs[index] if index < len(self.inputs) else None
        if tensor is None:
            raise self.error(f"expected an input {index}, found {len(self.inputs)}")
        if dtypes and tensor.dtype not in dtypes:
            raise self.error(
                f"expected {' or '.join(dtypes)} as input {tensor.name!r}, found {tensor.dtype}"
            )
        if not tensor.element_count:
            raise self.error(f"expected elements in input {tensor.name!r}, found {tensor.shape}")
        return tensor

    def constant(self, index: int) -> list[int]:
        """The elements of input ``index``, which must be a constant of integers."""
        tensor = self.inputs[index] if index < len(self.inputs) else None
        if tensor is None or tensor.data is None or tensor.dtype not in {"int32", "int64"}:
            raise self.error(f"expected constant integers as input {index}, found {tensor}")
        if tensor.element_count > _MAX_PARAMETERS:
            raise self.error(
                f"expected at most {_MAX_PARAMETERS} constant integers as input {index}, "
                f"found {tensor.element_count}"
            )
        return [int(each) for each in tensor.values().reshape(-1)]

    def source(self, index: int) -> str:
        """Return the place of input ``index``."""
        return self.scope.pointer(self._operator.inputs[index])

    def allocate(self) -> str:
        """Reserve memory for the output."""
        return self.scope.allocate(self._operator.outputs[0])

    def alias(self, index: int) -> None:
        """Let the output be input ``index`` under another shape."""
        self.scope.pointers[self._operator.outputs[0]] = self.source(index)

    def expect(self, what: str, expected: object, found: object) -> None:
        """Raise unless two things are equal."""
        if expected != found:
            raise self.error(f"expected {what} {expected}, found {found}")

    def axis(self, value: int, rank: int) -> int:
        """An axis counted from the front."""
        if not -rank <= value < rank:
            raise self.error(f"expected an axis of {-rank} to {rank - 1}, found {value}")
        return value % rank

    def require(self, condition: str) -> None:
        """Let the evaluation fail, at run time, unless a test holds."""
        self.writer.require(condition, self._number + 1)


def row_major(shape: tuple[int, ...]) -> list[int]:
    """The steps in elements along each dimension of a row-major tensor.

    >>> row_major((2, 3, 4))
    [12, 4, 1]
    """
    return [math.prod(shape[dimension + 1 :]) for dimension in range(len(shape))]


_Compute = Callable[[Step, str, list[str]], str]


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
            writer.load(operand.dtype, source, offset)
            for operand, source, offset in zip(operands, sources, offsets, strict=True)
        ]
        kind = operands[-1].dtype
        value = activate(step, compute(step, kind, values))
        writer.store(output.dtype, value, target, there)


def _check_shape(step: Step, operands: list[Tensor]) -> None:
    rank = max(len(operand.shape) for operand in operands)
    padded = [(1,) * (rank - len(each.shape)) + each.shape for each in operands]
    expected = tuple(max(sizes) for sizes in zip(*padded, strict=True))
    step.expect("the output's shape to be", list(expected), list(step.output.shape))


def _same_type(compute: _Compute) -> _Compute:
    def checked(step: Step, kind: str, values: list[str]) -> str:
        step.expect("elements of type", kind, step.output.dtype)
        return compute(step, kind, values)

    return checked


def activate(step: Step, value: str) -> str:
    """Apply the operator's fused activation, if it has one."""
    name = step.attribute("activation", "none")
    if name == "none":
        return value
    if name not in ACTIVATIONS or step.output.dtype != "float32":
        raise step.error(f"expected no activation, found {name} of {step.output.dtype}")
    with step.writer.within(str(name)):
        return ACTIVATIONS[str(name)](step, "float32", [value])


def instruction(operation: str) -> Fold:
    """Return the value that an operation of `Writer.binary` makes of two operands."""
    return lambda writer, kind, left, right: writer.binary(operation, kind, left, right)


def _called(function: str) -> _Compute:
    return _same_type(lambda step, kind, values: step.writer.call(function, kind, *values))


def _divide(step: Step, kind: str, values: list[str]) -> str:
    writer, (left, right) = step.writer, values
    if kind in FLOATS:
        return writer.binary("div", kind, left, right)
    # Division by zero and the one quotient that overflows trap on many CPUs.
    zero, one = writer.literal(kind, 0), writer.literal(kind, 1)
    fits = writer.compare("ne", kind, right, zero)
    step.require(fits)
    is_minus_one = writer.compare("eq", kind, right, writer.literal(kind, -1))
    divisor = writer.select(fits, kind, right, one)
    divisor = writer.select(is_minus_one, kind, one, divisor)
    quotient = writer.binary("div", kind, left, divisor)
    return writer.select(is_minus_one, kind, writer.call("neg", kind, left), quotient)


def _rsqrt(step: Step, kind: str, values: list[str]) -> str:
    root = step.writer.call("sqrt", kind, *values)
    return step.writer.binary("div", kind, step.writer.literal(kind, 1.0), root)


def _extreme(relation: str) -> Fold:
    """The right of two values where it is beyond the left; the left if one is NaN or both equal."""

    def choose(writer: Writer, kind: str, left: str, right: str) -> str:
        return writer.select(writer.compare(relation, kind, right, left), kind, right, left)

    return choose


def _fold(of_two: Fold) -> _Compute:
    return _same_type(lambda step, kind, values: of_two(step.writer, kind, *values))


maximum: Final = _extreme("gt")
minimum: Final = _extreme("lt")


def _compare(relation: str) -> _Compute:
    def compute(step: Step, kind: str, values: list[str]) -> str:
        step.expect("an output of type", "bool", step.output.dtype)
        test = step.writer.compare(relation, kind, *values)
        return step.writer.convert("test", "bool", test)

    return compute


def _clamp(low: float, high: float | None) -> _Compute:
    def compute(step: Step, kind: str, values: list[str]) -> str:
        writer = step.writer
        value = maximum(writer, kind, values[0], writer.literal(kind, low))
        return value if high is None else minimum(writer, kind, value, writer.literal(kind, high))

    return _same_type(compute)


def _leaky_relu(step: Step, kind: str, values: list[str]) -> str:
    writer, (value,) = step.writer, values
    scaled = writer.binary("mul", kind, value, writer.literal(kind, step.real("alpha")))
    test = writer.compare("gt", kind, value, writer.literal(kind, 0.0))
    return writer.select(test, kind, value, scaled)


def _squared_difference(step: Step, kind: str, values: list[str]) -> str:
    difference = _SUBTRACT(step.writer, kind, *values)
    return _MULTIPLY(step.writer, kind, difference, difference)


def _square(step: Step, kind: str, values: list[str]) -> str:
    return step.writer.binary("mul", kind, values[0], values[0])


def _not(step: Step, kind: str, values: list[str]) -> str:
    return step.writer.binary("xor", kind, values[0], step.writer.literal(kind, 1))


def _sign(step: Step, kind: str, values: list[str]) -> str:
    """-1, 0 or 1; NaN and both zeros stay what they are."""
    writer, (value,) = step.writer, values
    zero, one, less = (writer.literal(kind, number) for number in (0, 1, -1))
    above = writer.compare("gt", kind, value, zero)
    below = writer.compare("lt", kind, value, zero)
    return writer.select(above, kind, one, writer.select(below, kind, less, value))


def _cast(step: Step) -> None:
    step.expect("a number of inputs of", 1, len(step.inputs))
    operand = step.operand(0)
    _loop(step, [operand], _convert)


def _convert(step: Step, kind: str, values: list[str]) -> str:
    """C's conversions; a float outside an integer's range becomes the nearest integer, NaN 0."""
    return step.writer.convert(kind, step.output.dtype, values[0])


def _select(step: Step) -> None:
    condition, *choices = [step.operand(0, "bool"), step.operand(1), step.operand(2)]
    step.expect("the type of both choices to be", step.output.dtype, choices[0].dtype)
    step.expect("the type of both choices to be", step.output.dtype, choices[1].dtype)
    operands = [condition, *choices]
    if step.kind == "SELECT" and len(condition.shape) == 1 and len(step.output.shape) > 1:
        raise step.error("expected a condition of the output's shape, found one of rank 1")
    _loop(step, operands, _choose)


def _choose(step: Step, kind: str, values: list[str]) -> str:
    test = step.writer.convert("bool", "test", values[0])
    return step.writer.select(test, kind, values[1], values[2])


_TANH: Final = _called("tanh")
_MULTIPLY: Final = instruction("mul")
_SUBTRACT: Final = instruction("sub")

ACTIVATIONS: Final[Mapping[str, _Compute]] = {
    "relu": _clamp(0.0, None),
    "relu6": _clamp(0.0, 6.0),
    "relu_n1_to_1": _clamp(-1.0, 1.0),
    "tanh": _TANH,
}
"""Activations that can be fused into an operator."""

LOWERINGS: Final[Mapping[str, Callable[[Step], None]]] = {
    "ADD": _elementwise(2, _NUMBERS, _fold(instruction("add"))),
    "SUB": _elementwise(2, _NUMBERS, _fold(_SUBTRACT)),
    "MUL": _elementwise(2, _NUMBERS, _fold(_MULTIPLY)),
    "DIV": _elementwise(2, _NUMBERS, _same_type(_divide)),
    "MAXIMUM": _elementwise(2, _NUMBERS, _fold(maximum)),
    "MINIMUM": _elementwise(2, _NUMBERS, _fold(minimum)),
    "SQUARED_DIFFERENCE": _elementwise(2, _NUMBERS, _same_type(_squared_difference)),
    "NEG": _elementwise(1, _NUMBERS, _called("neg")),
    "ABS": _elementwise(1, _NUMBERS, _called("abs")),
    "SQUARE": _elementwise(1, _NUMBERS, _same_type(_square)),
    "SIGN": _elementwise(1, ("float32", "int32"), _same_type(_sign)),
    "SQRT": _elementwise(1, _FLOAT, _called("sqrt")),
    "RSQRT": _elementwise(1, _FLOAT, _same_type(_rsqrt)),
    "FLOOR": _elementwise(1, _FLOAT, _called("floor")),
    "CEIL": _elementwise(1, _FLOAT, _called("ceil")),
    "EXP": _elementwise(1, _FLOAT, _called("exp")),
    "LOG": _elementwise(1, _FLOAT, _called("log")),
    "TANH": _elementwise(1, _FLOAT, _TANH),
    "LOGISTIC": _elementwise(1, _FLOAT, _called("logistic")),
    "RELU": _elementwise(1, _FLOAT, ACTIVATIONS["relu"]),
    "RELU6": _elementwise(1, _FLOAT, ACTIVATIONS["relu6"]),
    "RELU_N1_TO_1": _elementwise(1, _FLOAT, ACTIVATIONS["relu_n1_to_1"]),
    "LEAKY_RELU": _elementwise(1, _FLOAT, _same_type(_leaky_relu)),
    "LESS": _elementwise(2, _ORDERED, _compare("lt")),
    "LESS_EQUAL": _elementwise(2, _ORDERED, _compare("le")),
    "GREATER": _elementwise(2, _ORDERED, _compare("gt")),
    "GREATER_EQUAL": _elementwise(2, _ORDERED, _compare("ge")),
    "EQUAL": _elementwise(2, tuple(DTYPES), _compare("eq")),
    "NOT_EQUAL": _elementwise(2, tuple(DTYPES), _compare("ne")),
    "LOGICAL_AND": _elementwise(2, _BOOL, _fold(instruction("and"))),
    "LOGICAL_OR": _elementwise(2, _BOOL, _fold(instruction("or"))),
    "LOGICAL_NOT": _elementwise(1, _BOOL, _same_type(_not)),
    "CAST": _cast,
    "SELECT": _select,
    "SELECT_V2": _select,
}

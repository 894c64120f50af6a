"""Random small TFLite graphs, and how far two right evaluations of them may be apart."""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import flatbuffers
import numpy as np
from hypothesis import strategies as st

from mlgo_gym.model._graph import DTYPES
from tests.model.agreement import Array

TYPES: Final = {dtype: dtype.upper() for dtype in DTYPES}
ROUNDING: Final = 1e-6
"""Of a sum, in parts of all its terms' magnitudes; of an elementary function, of its value."""

MAX_OPERATORS: Final = 8
ANYTHING: Final = math.inf
Shape = tuple[int, ...]


@dataclass(frozen=True)
class Value:
    """A tensor, and what is known of it where inputs are small.

    Attributes:
        bound: floats are of this magnitude at most; infinite where nobody knows.
        slack: how far floats may be apart; 0: they are the same to the bit, for large inputs too;
            infinite: by a part of the value.
        is_product: LLVM may keep more of its bits where it is added to something.
        needs_small: for large inputs nobody says what it is.
    """

    number: int
    shape: Shape
    dtype: str
    bound: float = 0.0
    slack: float = 0.0
    is_product: bool = False
    needs_small: bool = False

    @property
    def is_exact(self) -> bool:
        return self.slack == 0

    @property
    def is_known(self) -> bool:
        return math.isfinite(self.bound)


@dataclass(frozen=True)
class Graph:
    """A file, and what is known of its inputs and outputs."""

    data: bytes = field(repr=False)
    inputs: tuple[Value, ...] = field(repr=False)
    outputs: tuple[Value, ...]
    steps: tuple[str, ...]


class Sketch:
    """A graph that grows by one operator at a time, and becomes a file."""

    def __init__(self, draw: Callable[..., Any]) -> None:
        self.draw = draw
        self.schema = importlib.import_module("ai_edge_litert.schema_py_generated")
        self.values: list[Value] = []
        self.inputs: list[Value] = []
        self._tensors: list[Any] = []
        self._operators: list[Any] = []
        self._kinds: list[str] = []
        self._said: list[str] = []
        self._buffers = [self.schema.BufferT()]
        self._read: set[int] = set()

    def input(self, shape: Shape, dtype: str, bound: float) -> None:
        value = Value(self._tensor(shape, dtype), shape, dtype, bound)
        self.inputs.append(value)
        self.values.append(value)
        self._said.append(f"t{value.number} {value.dtype} {value.shape} = input")

    def constant(self, data: Any, dtype: str = "int32") -> Value:
        array = np.asarray(data, dtype)
        buffer = self.schema.BufferT()
        buffer.data = np.frombuffer(array.tobytes(), np.uint8)
        self._buffers.append(buffer)
        number = self._tensor(array.shape, dtype, len(self._buffers) - 1)
        bound = float(np.abs(array).max()) if dtype == "float32" else 0.0
        return Value(number, array.shape, dtype, bound)

    def weights(self, shape: Shape) -> Value:
        """Constant floats of -2 to 2, hardly any of them round."""
        seed = self.draw(st.integers(0, 999))
        return self.constant(np.random.default_rng(seed).uniform(-2, 2, shape), "float32")

    def step(
        self,
        kind: str,
        inputs: Sequence[Value | None],
        shape: Sequence[int],
        options: tuple[str, dict[str, Any]] | None = None,
        **known: Any,
    ) -> None:
        """Add an operator; the output is like the first input but for what is said here."""
        first = next(each for each in inputs if each)
        facts: dict[str, Any] = {
            "dtype": first.dtype,
            "bound": first.bound,
            "slack": first.slack,
            "is_product": first.is_product,
            "needs_small": any(each.needs_small for each in inputs if each),
        } | known
        output = Value(self._tensor(tuple(shape), facts["dtype"]), tuple(shape), **facts)
        made = self.schema.OperatorT()
        made.inputs = [each.number if each else -1 for each in inputs]
        made.outputs = [output.number]
        if kind not in self._kinds:
            self._kinds.append(kind)
        made.opcodeIndex = self._kinds.index(kind)
        if options:
            made.builtinOptionsType = getattr(self.schema.BuiltinOptions, options[0])
            made.builtinOptions = getattr(self.schema, f"{options[0]}T")()
            vars(made.builtinOptions).update(options[1])
        self._operators.append(made)
        given = " ".join(f"t{each.number}" if each else "-" for each in inputs)
        self._said.append(
            f"t{output.number} {output.dtype} {output.shape} = {kind} {given} {options}"
        )
        self._read |= {each.number for each in inputs if each}
        self.values.append(output)

    @property
    def is_done(self) -> bool:
        """Whether it has an operator, and is to have no more."""
        return bool(self._operators) and (
            len(self._operators) == MAX_OPERATORS or self.draw(st.integers(0, 4)) == 0
        )

    def graph(self) -> Graph:
        """What there is, as a file; nobody reads its outputs, or some do."""
        computed = [each for each in self.values if each not in self.inputs]
        outputs = tuple(
            each for each in computed if each.number not in self._read or self.draw(st.booleans())
        )
        return Graph(self._file(outputs), tuple(self.inputs), outputs, tuple(self._said))

    def _file(self, outputs: Sequence[Value]) -> bytes:
        graph = self.schema.SubGraphT()
        graph.tensors, graph.operators = self._tensors, self._operators
        graph.inputs = [each.number for each in self.inputs]
        graph.outputs = [each.number for each in outputs]
        model = self.schema.ModelT()
        model.version, model.subgraphs, model.buffers = 3, [graph], self._buffers
        model.operatorCodes = [self._code(kind) for kind in self._kinds]
        builder = flatbuffers.Builder(1024)
        builder.Finish(model.Pack(builder), b"TFL3")
        return bytes(builder.Output())

    def _code(self, kind: str) -> Any:
        code = self.schema.OperatorCodeT()
        code.builtinCode = getattr(self.schema.BuiltinOperator, kind)
        code.deprecatedBuiltinCode = min(code.builtinCode, 127)
        code.version = 2 if kind == "BROADCAST_TO" else 1
        return code

    def _tensor(self, shape: Shape, dtype: str, buffer: int = 0) -> int:
        tensor = self.schema.TensorT()
        tensor.name = f"t{len(self._tensors)}"
        tensor.shape, tensor.buffer = list(shape), buffer
        tensor.type = getattr(self.schema.TensorType, TYPES[dtype])
        self._tensors.append(tensor)
        return len(self._tensors) - 1


def check(found: Array, expected: Array, value: Value) -> None:
    """That two evaluations of a value are no further apart than rounding explains."""
    assert found.shape == expected.shape == value.shape
    if value.is_exact or value.dtype != "float32":
        np.testing.assert_array_equal(found, expected.view(found.dtype))
    elif math.isinf(value.slack):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-37)
    else:
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=value.slack)

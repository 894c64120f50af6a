"""A `Graph` that is written operator by operator."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mlgo_gym.base import TensorSpec
from mlgo_gym.model._graph import Attribute, Graph, Operator, Port, Tensor
from mlgo_gym.model._output_spec import OUTPUT


@dataclass(frozen=True, slots=True)
class Value:
    """The number of a tensor that an operator makes or is given, its type and shape."""

    number: int
    dtype: str
    shape: tuple[int, ...]


Operand = Value | np.ndarray[Any, Any] | np.generic | float | None
"""A value; or a constant, of which a plain number is a float32; or none, where one is optional."""


class GraphWriter:
    """Writes a graph; shapes follow numpy's rules where none is given.

    >>> writer = GraphWriter()
    >>> x = writer.input(TensorSpec("x", "float", (1, 2)))
    >>> graph = writer.graph("y", writer.of("TANH", x))
    >>> [each.kind for each in graph.operators]
    ['TANH']
    """

    def __init__(self) -> None:
        self._tensors: list[Tensor] = []
        self._operators: list[Operator] = []
        self._inputs: list[Port] = []

    def input(self, spec: TensorSpec) -> Value:
        """A tensor that LLVM sends, under the name that TensorFlow's converter gives it."""
        value = self._value(f"action_{spec.name}:0", spec.dtype.name, spec.shape)
        self._inputs.append(Port(spec.name, value.number))
        return value

    def value(self, given: Value | np.ndarray[Any, Any] | np.generic | float) -> Value:
        """A value as it is, or a constant as one; a plain number is a float32."""
        if isinstance(given, Value):
            return given
        array = np.asarray(given, np.float32 if isinstance(given, float | int) else None)
        return self._value(f"constant_{len(self._tensors)}", array.dtype.name, array.shape, array)

    def of(
        self,
        kind: str,
        *operands: Operand,
        dtype: str | None = None,
        shape: tuple[int, ...] | None = None,
        **attributes: Attribute,
    ) -> Value:
        """The result of an operator; its type is the first operand's where none is given."""
        given = [None if each is None else self.value(each) for each in operands]
        known = [each for each in given if each is not None]
        if shape is None:
            shape = np.broadcast_shapes(*(each.shape for each in known))
        made = self._value(f"{kind.lower()}_{len(self._operators)}", dtype or known[0].dtype, shape)
        numbers = tuple(-1 if each is None else each.number for each in given)
        self._operators.append(Operator(kind, numbers, (made.number,), attributes))
        return made

    def cast(self, value: Value, dtype: str) -> Value:
        """A value as another type."""
        return value if value.dtype == dtype else self.of("CAST", value, dtype=dtype)

    def reshaped(self, value: Value, shape: tuple[int, ...]) -> Value:
        """A value in another shape."""
        if value.shape == shape:
            return value
        return self.of("RESHAPE", value, np.array(shape, np.int32), shape=shape)

    def joined(self, parts: Sequence[Value], axis: int) -> Value:
        """Values one behind the other."""
        shape = list(parts[0].shape)
        shape[axis] = sum(each.shape[axis] for each in parts)
        return self.of("CONCATENATION", *parts, shape=tuple(shape), axis=axis)

    def graph(self, name: str, output: Value) -> Graph:
        """The graph whose one output is called so in its signature."""
        self._tensors[output.number] = Tensor(f"{OUTPUT}:0", output.dtype, output.shape)
        return Graph(
            source=name,
            tensors=tuple(self._tensors),
            operators=tuple(self._operators),
            inputs=tuple(self._inputs),
            outputs=(Port(name, output.number),),
        )

    def _value(
        self,
        name: str,
        dtype: str,
        shape: tuple[int, ...],
        constant: np.ndarray[Any, Any] | None = None,
    ) -> Value:
        data = None if constant is None else np.ascontiguousarray(constant).tobytes()
        self._tensors.append(Tensor(name, dtype, shape, data))
        return Value(len(self._tensors) - 1, dtype, shape)

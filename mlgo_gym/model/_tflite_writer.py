"""Writes a graph, operator by operator, and as a ``.tflite`` file by Google's FlatBuffers builder.

What `read_tflite` gives is written so that it is read again, and that TFLite's own interpreter
evaluates it. A graph has less than a file may say: the options that shapes and types imply are
found again from those.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from flatbuffers import Builder, number_types

from mlgo_gym.base import ModelError, TensorSpec
from mlgo_gym.model._card import OUTPUT
from mlgo_gym.model._graph import Attribute, Graph, Operator, Port, Tensor
from mlgo_gym.model._saved_model import SIGNATURE
from mlgo_gym.model._tflite_reader import ACTIVATIONS, BUILTIN_NAMES, OPERATORS, TENSOR_TYPES

_SCHEMA_VERSION: Final = 3
_WIDER_FIELD: Final = 127
"""In the byte that old files have an operator's number in: see the wider field."""
_DATA_ALIGNMENT: Final = 16
_ACTIVATION_CODES: Final = {name: code for code, name in ACTIVATIONS.items()}
_TYPE_CODES: Final = {name: code for code, name in TENSOR_TYPES.items()}

_Fields = Mapping[int, object]
"""A table: by a field's number, a `_Scalar`, text, bytes, an array, a table, or tables."""

_REDUCTIONS: Final = (
    "MEAN", "REDUCE_ALL", "REDUCE_ANY", "REDUCE_MAX", "REDUCE_MIN", "REDUCE_PROD", "SUM",
)  # fmt: skip
_OPTIONS: Final = {
    "ADD": 11, "ARG_MAX": 40, "ARG_MIN": 57, "BATCH_MATMUL": 101, "BUCKETIZE": 115, "CAST": 37,
    "CONCATENATION": 10, "DIV": 29, "FULLY_CONNECTED": 8, "GATHER": 23, "LEAKY_RELU": 75, "MUL": 21,
    "ONE_HOT": 61, "PACK": 59, "SOFTMAX": 9, "SQUEEZE": 30, "STRIDED_SLICE": 32, "SUB": 28,
    **dict.fromkeys(_REDUCTIONS, 27),
}  # fmt: skip
"""``BuiltinOptions``: the number of an operator's table in the union. Others do without one."""

_VERSIONS: Final = {"BROADCAST_TO": 2}
"""The first version that TFLite's interpreter has, where that is not 1."""


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


@dataclass(frozen=True, slots=True)
class _Scalar:
    """A number in a table, of the type that FlatBuffers calls so."""

    kind: str
    value: float


def write_tflite(graph: Graph) -> bytes:
    """A TFLite file of a graph, with a signature ``action`` that has the names of its ports.

    Raises:
        ModelError: an operator is none of those that `read_tflite` takes.

    >>> from mlgo_gym.model._graph import Operator, Port, Tensor
    >>> tensors = (Tensor("x", "float32", (1, 2)), Tensor("y", "float32", (1, 2)))
    >>> steps = (Operator("TANH", (0,), (1,), {}),)
    >>> data = write_tflite(Graph("", tensors, steps, (Port("x", 0),), (Port("y", 1),)))
    >>> data[4:8]
    b'TFL3'
    """
    kinds = sorted({each.kind for each in graph.operators})
    subgraph = {
        0: [_tensor(number, each) for number, each in enumerate(graph.tensors)],
        1: _numbers(each.tensor for each in graph.inputs),
        2: _numbers(each.tensor for each in graph.outputs),
        3: [_operator(each, kinds, graph) for each in graph.operators],
    }
    signature = {0: _names(graph.inputs), 1: _names(graph.outputs), 2: SIGNATURE}
    model = {
        0: _Scalar("Uint32", _SCHEMA_VERSION),
        1: [_code(each, graph.source) for each in kinds],
        2: [subgraph],
        # The first has to be empty; tensors without data may name one without, too.
        4: [{}, *({0: each.data} if each.data else {} for each in graph.tensors)],
        7: [signature],
    }
    builder = Builder(0)
    builder.Finish(_written(builder, model), b"TFL3")
    return bytes(builder.Output())


def _code(kind: str, source: str) -> _Fields:
    if kind not in OPERATORS:
        raise ModelError(source, f"operator {kind}: expected one of {', '.join(OPERATORS)}")
    number = BUILTIN_NAMES.index(kind)
    return {
        0: _Scalar("Int8", min(number, _WIDER_FIELD)),
        2: _Scalar("Int32", _VERSIONS.get(kind, 1)),
        3: _Scalar("Int32", number),
    }


def _tensor(number: int, tensor: Tensor) -> _Fields:
    return {
        0: _numbers(tensor.shape),
        1: _type(tensor),
        2: _Scalar("Uint32", number + 1),
        3: tensor.name,
    }


def _operator(operator: Operator, kinds: list[str], graph: Graph) -> _Fields:
    fields: dict[int, object] = {
        0: _Scalar("Uint32", kinds.index(operator.kind)),
        1: _numbers(operator.inputs),
        2: _numbers(operator.outputs),
    }
    if operator.kind in _OPTIONS:
        fields[3] = _Scalar("Uint8", _OPTIONS[operator.kind])
        fields[4] = _own_options(operator) | _implied_options(operator, graph)
    return fields


def _own_options(operator: Operator) -> dict[int, object]:
    """The options that the graph has, as they were read."""
    fields: dict[int, object] = {}
    for option in OPERATORS[operator.kind]:
        value: Any = operator.attributes.get(option.name, option.default)
        if option.kind == "reals":
            fields[option.field] = np.array(value, np.float32)
        elif option.kind == "activation":
            fields[option.field] = _Scalar("Int8", _ACTIVATION_CODES[value or "none"])
        else:
            fields[option.field] = _Scalar(option.kind, value)
    return fields


def _implied_options(operator: Operator, graph: Graph) -> dict[int, object]:
    """Options that operands and shapes imply, by their field."""
    given, made = (graph.tensors[each[0]] for each in (operator.inputs, operator.outputs))
    if operator.kind in _REDUCTIONS:
        return {0: _Scalar("Bool", len(given.shape) == len(made.shape))}
    match operator.kind:
        case "ARG_MAX" | "ARG_MIN":
            return {0: _type(made)}
        case "CAST":
            return {0: _type(given), 1: _type(made)}
        case "PACK":
            return {0: _Scalar("Int32", len(operator.inputs))}
        case "SQUEEZE":
            return {0: _numbers(_dropped(given.shape, made.shape))}
    return {}


def _dropped(before: tuple[int, ...], after: tuple[int, ...]) -> list[int]:
    """The dimensions of 1 that are left out."""
    dropped = []
    for dimension, size in enumerate(before):
        if after and size == after[0]:
            after = after[1:]
        else:
            dropped.append(dimension)
    return dropped


def _type(tensor: Tensor) -> _Scalar:
    return _Scalar("Int8", _TYPE_CODES[tensor.dtype])


def _names(ports: tuple[Port, ...]) -> list[_Fields]:
    return [{0: each.name, 1: _Scalar("Uint32", each.tensor)} for each in ports]


def _numbers(values: Any) -> np.ndarray[Any, Any]:
    return np.fromiter(values, np.int32)


def _written(builder: Any, value: Any) -> int:
    """Write what a field refers to, and return its offset."""
    if isinstance(value, str):
        return int(builder.CreateString(value))
    if isinstance(value, bytes):
        return _data(builder, value)
    if isinstance(value, np.ndarray):
        return int(builder.CreateNumpyVector(value))
    if isinstance(value, list):
        offsets = [_written(builder, each) for each in value]
        builder.StartVector(4, len(offsets), 4)
        for offset in reversed(offsets):
            builder.PrependUOffsetTRelative(offset)
        return int(builder.EndVector())
    slots = [
        (field, each if isinstance(each, _Scalar) else _written(builder, each))
        for field, each in value.items()
    ]
    builder.StartObject(max(value, default=-1) + 1)
    for field, each in slots:
        if isinstance(each, _Scalar):
            builder.PrependSlot(getattr(number_types, f"{each.kind}Flags"), field, each.value, None)
        else:
            builder.PrependUOffsetTRelativeSlot(field, each, 0)
    return int(builder.EndObject())


def _data(builder: Any, data: bytes) -> int:
    """A constant's bytes, aligned as TFLite reads them."""
    builder.Prep(_DATA_ALIGNMENT, len(data))
    return int(builder.CreateNumpyVector(np.frombuffer(data, np.uint8)))

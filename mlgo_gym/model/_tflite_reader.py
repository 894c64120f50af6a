"""Reads a ``.tflite`` file into a `Graph`.

Files may be broken or hostile: whatever is in them ends in a `Graph` or in a `ModelError` that
names the file, and memory stays within a small multiple of the file's size.

Tables of FlatBuffers are read through Google's own accessors, which are pure Python: what a
malformed file can do to them is raise, or read other bytes of the same file. `Table` adds the
limits (positions inside the file, vectors no longer than it) and the caller translates
`FlatbufferError`. Vectors may overlap in a hostile file; what is read of all of them together is
limited too, to twice the file's size, and so is the number of tables.

The tables of names are the part of ``tensorflow/compiler/mlir/lite/schema/schema.fbs`` (version 3)
in use.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from flatbuffers import encode, number_types
from flatbuffers.table import Table as _Table

from corpus_tools.budget import Budget
from mlgo_gym.base import ModelError, read_bounded
from mlgo_gym.model._card import unreadable
from mlgo_gym.model._graph import MAX_RANK, Attribute, Graph, Operator, Port, Tensor

MAX_TABLES: Final = 1 << 13
"""The most tables that are read of a file; a policy has some hundreds."""

_OFFSET_BYTES: Final = 4
_VTABLE_HEADER_BYTES: Final = 4
_FOREIGN_ERRORS: Final = (struct.error, IndexError, ValueError, TypeError, OverflowError)
TENSOR_TYPES: Final[Mapping[int, str]] = {
    0: "float32", 1: "float16", 2: "int32", 3: "uint8", 4: "int64", 5: "string", 6: "bool",
    7: "int16", 8: "complex64", 9: "int8", 10: "float64", 11: "complex128", 12: "uint64",
    13: "resource", 14: "variant", 15: "uint32", 16: "uint16", 17: "int4", 18: "bfloat16",
}  # fmt: skip
"""``TensorType``; which of them can be used is for `model._graph` to say."""

ACTIVATIONS: Final[Mapping[int, str]] = {
    0: "none", 1: "relu", 2: "relu_n1_to_1", 3: "relu6", 4: "tanh", 5: "sign_bit",
}  # fmt: skip
"""``ActivationFunctionType``."""

_PLAIN: Final = (
    "ABS", "ARG_MAX", "ARG_MIN", "BROADCAST_TO", "CAST", "CEIL", "EQUAL", "EXP", "EXPAND_DIMS",
    "FLOOR", "GREATER", "GREATER_EQUAL", "LESS", "LESS_EQUAL", "LOG", "LOGICAL_AND",
    "LOGICAL_NOT", "LOGICAL_OR", "LOGISTIC", "MAXIMUM", "MEAN", "MINIMUM", "NEG", "NOT_EQUAL",
    "REDUCE_ALL", "REDUCE_ANY", "REDUCE_MAX", "REDUCE_MIN", "REDUCE_PROD", "RELU", "RELU6",
    "RELU_N1_TO_1", "RESHAPE", "RSQRT", "SELECT", "SELECT_V2", "SIGN", "SLICE", "SQRT",
    "SQUARE", "SQUARED_DIFFERENCE", "SQUEEZE", "SUM", "TANH", "TILE", "TRANSPOSE",
)  # fmt: skip

MAX_FILE_BYTES: Final = 1 << 24
"""The largest file that is read, 16 MiB; policies have some hundred kilobytes."""

MAX_OPERANDS: Final = 1 << 16
"""The most inputs and outputs that all operators may have together."""

_MAX_ITEMS: Final = 1 << 12
_SCHEMA_VERSION: Final = 3
_DECORATION: Final = re.compile(r"^(?:serving_default_|action_)?(?P<name>.+?)(?::\d+)?$", re.DOTALL)


class FlatbufferError(Exception):
    """The bytes are not those of a FlatBuffers file of the expected schema."""


class Table:
    """A table, fields by their number in the schema; a `FlatbufferError` bounds what they hold."""

    def __init__(self, data: bytes, position: int, budget: Budget | None = None) -> None:
        self._data = data
        self._budget = budget or Budget(
            FlatbufferError, bytes_of_vectors=2 * len(data), tables=MAX_TABLES
        )
        self._budget.charge(tables=1)
        self._check(position)
        self._table: Any = _Table(data, position)
        self._vtable = self._guard(
            lambda: position - self._table.Get(number_types.SOffsetTFlags, position), position
        )
        self._vtable_bytes = self._read(number_types.VOffsetTFlags, self._vtable)

    @classmethod
    def root(cls, data: bytes, identifier: bytes) -> Table:
        """The root table of a file that carries this identifier."""
        found = data[_OFFSET_BYTES : 2 * _OFFSET_BYTES]
        if found != identifier:
            raise FlatbufferError(f"expected the identifier {identifier!r}, found {found!r}")
        return cls(data, int.from_bytes(data[:_OFFSET_BYTES], "little"))

    def integer(self, field: int, default: int = 0, *, kind: str = "Int32") -> int:
        """A scalar field; ``kind`` is FlatBuffers' name of its type."""
        position = self._field(field)
        if not position:
            return default
        return int(self._read(getattr(number_types, f"{kind}Flags"), position))

    def real(self, field: int, default: float = 0.0) -> float:
        """A 32-bit float field."""
        position = self._field(field)
        return float(self._read(number_types.Float32Flags, position)) if position else default

    def has(self, field: int) -> bool:
        """Whether the field is there."""
        return self._field(field) != 0

    def table(self, field: int) -> Table | None:
        """A table field, or ``None`` where it is left out."""
        position = self._field(field)
        return self._child(position) if position else None

    def tables(self, field: int, limit: int) -> list[Table]:
        """A vector of tables."""
        start, count = self._vector(field, _OFFSET_BYTES, limit)
        return [self._child(start + _OFFSET_BYTES * index) for index in range(count)]

    def integers(self, field: int, limit: int) -> tuple[int, ...]:
        """A vector of 32-bit integers."""
        start, count = self._vector(field, 4, limit)
        return struct.unpack_from(f"<{count}i", self._data, start)

    def reals(self, field: int, limit: int) -> tuple[float, ...]:
        """A vector of 32-bit floats."""
        start, count = self._vector(field, 4, limit)
        return struct.unpack_from(f"<{count}f", self._data, start)

    def data(self, field: int) -> bytes:
        """A vector of bytes."""
        start, count = self._vector(field, 1, len(self._data))
        return self._data[start : start + count]

    def text(self, field: int) -> str:
        """A string, with what is not UTF-8 replaced."""
        return self.data(field).decode("utf-8", "replace")

    def _child(self, position: int) -> Table:
        return Table(self._data, self._follow(position), self._budget)

    def _field(self, field: int) -> int:
        """The position of a field's value, 0 where it is left out."""
        slot = _VTABLE_HEADER_BYTES + 2 * field
        if slot + 2 > self._vtable_bytes:
            return 0
        offset = self._read(number_types.VOffsetTFlags, self._vtable + slot)
        return int(self._table.Pos + offset) if offset else 0

    def _vector(self, field: int, element_bytes: int, limit: int) -> tuple[int, int]:
        position = self._field(field)
        if not position:
            return 0, 0
        start = self._follow(position)
        count = int(self._read(number_types.UOffsetTFlags, start))
        start += _OFFSET_BYTES
        room = (len(self._data) - start) // element_bytes
        if count > min(limit, room):
            raise FlatbufferError(
                f"expected at most {min(limit, room)} entries in a vector, found {count}"
            )
        self._budget.charge(bytes_of_vectors=count * element_bytes)
        return start, count

    def _follow(self, position: int) -> int:
        return position + int(self._read(number_types.UOffsetTFlags, position))

    def _read(self, flags: Any, position: int) -> Any:
        return self._guard(lambda: encode.Get(flags.packer_type, self._data, position), position)

    def _guard(self, read: Any, position: int) -> Any:
        self._check(position)
        try:
            return read()
        except _FOREIGN_ERRORS as error:
            raise FlatbufferError(f"position {position}: {error}") from error

    def _check(self, position: int) -> None:
        if not 0 <= position < len(self._data):
            raise FlatbufferError(f"expected a position below {len(self._data)}, found {position}")


@dataclass(frozen=True, slots=True)
class Option:
    """An option's field, of a FlatBuffers type, an ``activation``, or ``reals``, many floats."""

    name: str
    field: int
    kind: str
    default: Any = 0


BUILTIN_NAMES: Final = (
    "ADD", "AVERAGE_POOL_2D", "CONCATENATION", "CONV_2D", "DEPTHWISE_CONV_2D", "DEPTH_TO_SPACE",
    "DEQUANTIZE", "EMBEDDING_LOOKUP", "FLOOR", "FULLY_CONNECTED", "HASHTABLE_LOOKUP",
    "L2_NORMALIZATION", "L2_POOL_2D", "LOCAL_RESPONSE_NORMALIZATION", "LOGISTIC",
    "LSH_PROJECTION", "LSTM", "MAX_POOL_2D", "MUL", "RELU", "RELU_N1_TO_1", "RELU6", "RESHAPE",
    "RESIZE_BILINEAR", "RNN", "SOFTMAX", "SPACE_TO_DEPTH", "SVDF", "TANH", "CONCAT_EMBEDDINGS",
    "SKIP_GRAM", "CALL", "CUSTOM", "EMBEDDING_LOOKUP_SPARSE", "PAD",
    "UNIDIRECTIONAL_SEQUENCE_RNN", "GATHER", "BATCH_TO_SPACE_ND", "SPACE_TO_BATCH_ND",
    "TRANSPOSE", "MEAN", "SUB", "DIV", "SQUEEZE", "UNIDIRECTIONAL_SEQUENCE_LSTM",
    "STRIDED_SLICE", "BIDIRECTIONAL_SEQUENCE_RNN", "EXP", "TOPK_V2", "SPLIT", "LOG_SOFTMAX",
    "DELEGATE", "BIDIRECTIONAL_SEQUENCE_LSTM", "CAST", "PRELU", "MAXIMUM", "ARG_MAX", "MINIMUM",
    "LESS", "NEG", "PADV2", "GREATER", "GREATER_EQUAL", "LESS_EQUAL", "SELECT", "SLICE", "SIN",
    "TRANSPOSE_CONV", "SPARSE_TO_DENSE", "TILE", "EXPAND_DIMS", "EQUAL", "NOT_EQUAL", "LOG",
    "SUM", "SQRT", "RSQRT", "SHAPE", "POW", "ARG_MIN", "FAKE_QUANT", "REDUCE_PROD",
    "REDUCE_MAX", "PACK", "LOGICAL_OR", "ONE_HOT", "LOGICAL_AND", "LOGICAL_NOT", "UNPACK",
    "REDUCE_MIN", "FLOOR_DIV", "REDUCE_ANY", "SQUARE", "ZEROS_LIKE", "FILL", "FLOOR_MOD",
    "RANGE", "RESIZE_NEAREST_NEIGHBOR", "LEAKY_RELU", "SQUARED_DIFFERENCE", "MIRROR_PAD", "ABS",
    "SPLIT_V", "UNIQUE", "CEIL", "REVERSE_V2", "ADD_N", "GATHER_ND", "COS", "WHERE", "RANK",
    "ELU", "REVERSE_SEQUENCE", "MATRIX_DIAG", "QUANTIZE", "MATRIX_SET_DIAG", "ROUND",
    "HARD_SWISH", "IF", "WHILE", "NON_MAX_SUPPRESSION_V4", "NON_MAX_SUPPRESSION_V5",
    "SCATTER_ND", "SELECT_V2", "DENSIFY", "SEGMENT_SUM", "BATCH_MATMUL",
    "PLACEHOLDER_FOR_GREATER_OP_CODES", "CUMSUM", "CALL_ONCE", "BROADCAST_TO", "RFFT2D",
    "CONV_3D", "IMAG", "REAL", "COMPLEX_ABS", "HASHTABLE", "HASHTABLE_FIND", "HASHTABLE_IMPORT",
    "HASHTABLE_SIZE", "REDUCE_ALL", "CONV_3D_TRANSPOSE", "VAR_HANDLE", "READ_VARIABLE",
    "ASSIGN_VARIABLE", "BROADCAST_ARGS", "RANDOM_STANDARD_NORMAL", "BUCKETIZE",
    "RANDOM_UNIFORM", "MULTINOMIAL", "GELU", "DYNAMIC_UPDATE_SLICE", "RELU_0_TO_1",
    "UNSORTED_SEGMENT_PROD", "UNSORTED_SEGMENT_MAX", "UNSORTED_SEGMENT_SUM", "ATAN2",
    "UNSORTED_SEGMENT_MIN", "SIGN", "BITCAST", "BITWISE_XOR", "RIGHT_SHIFT",
    "STABLEHLO_LOGISTIC", "STABLEHLO_ADD", "STABLEHLO_DIVIDE", "STABLEHLO_MULTIPLY",
    "STABLEHLO_MAXIMUM", "STABLEHLO_RESHAPE", "STABLEHLO_CLAMP", "STABLEHLO_CONCATENATE",
    "STABLEHLO_BROADCAST_IN_DIM", "STABLEHLO_CONVOLUTION", "STABLEHLO_SLICE",
    "STABLEHLO_CUSTOM_CALL", "STABLEHLO_REDUCE", "STABLEHLO_ABS", "STABLEHLO_AND",
    "STABLEHLO_COSINE", "STABLEHLO_EXPONENTIAL", "STABLEHLO_FLOOR", "STABLEHLO_LOG",
    "STABLEHLO_MINIMUM", "STABLEHLO_NEGATE", "STABLEHLO_OR", "STABLEHLO_POWER",
    "STABLEHLO_REMAINDER", "STABLEHLO_RSQRT", "STABLEHLO_SELECT", "STABLEHLO_SUBTRACT",
    "STABLEHLO_TANH", "STABLEHLO_SCATTER", "STABLEHLO_COMPARE", "STABLEHLO_CONVERT",
    "STABLEHLO_DYNAMIC_SLICE", "STABLEHLO_DYNAMIC_UPDATE_SLICE", "STABLEHLO_PAD",
    "STABLEHLO_IOTA", "STABLEHLO_DOT_GENERAL", "STABLEHLO_REDUCE_WINDOW", "STABLEHLO_SORT",
    "STABLEHLO_WHILE", "STABLEHLO_GATHER", "STABLEHLO_TRANSPOSE", "DILATE",
    "STABLEHLO_RNG_BIT_GENERATOR", "REDUCE_WINDOW", "STABLEHLO_COMPOSITE",
    "STABLEHLO_SHIFT_LEFT", "STABLEHLO_CBRT",
)  # fmt: skip
"""``BuiltinOperator``: the name of each number."""

_ACTIVATION: Final = Option("activation", 0, "activation")


OPERATORS: Final[Mapping[str, tuple[Option, ...]]] = {
    **dict.fromkeys(_PLAIN, ()),
    **dict.fromkeys(("ADD", "SUB", "MUL", "DIV"), (_ACTIVATION,)),
    "BATCH_MATMUL": (Option("adj_x", 0, "Bool"), Option("adj_y", 1, "Bool")),
    "BUCKETIZE": (Option("boundaries", 0, "reals", ()),),
    "CONCATENATION": (Option("axis", 0, "Int32"), Option("activation", 1, "activation")),
    "FULLY_CONNECTED": (
        _ACTIVATION,
        Option("weights_format", 1, "Int8"),
        Option("keep_num_dims", 2, "Bool"),
    ),
    "GATHER": (Option("axis", 0, "Int32"), Option("batch_dims", 1, "Int32")),
    "LEAKY_RELU": (Option("alpha", 0, "Float32"),),
    "ONE_HOT": (Option("axis", 0, "Int32"),),
    "PACK": (Option("axis", 1, "Int32"),),
    "SOFTMAX": (Option("beta", 0, "Float32"),),
    "STRIDED_SLICE": (
        Option("begin_mask", 0, "Int32"),
        Option("end_mask", 1, "Int32"),
        Option("ellipsis_mask", 2, "Int32"),
        Option("new_axis_mask", 3, "Int32"),
        Option("shrink_axis_mask", 4, "Int32"),
        Option("offset", 5, "Bool"),
    ),
}
"""The operators that are lowered, and what is read of their options."""


def read_tflite(model: Path | str | bytes, *, source: str = "<bytes>") -> Graph:
    """Read a TFLite model: a path, or the bytes of a file, which errors call ``source``.

    Raises:
        ModelError: the file cannot be read, is malformed, or uses what this package does not
            support: other operators or types, shapes that are not fixed, several subgraphs.

    >>> from mlgo_gym.model import find_model
    >>> graph = find_model("inlining-for-size") + "/model.tflite"
    >>> len(read_tflite(graph).inputs)
    38
    """
    if not isinstance(model, bytes):
        model, source = read_graph(Path(model)), str(model)
    if len(model) > MAX_FILE_BYTES:
        raise ModelError(source, f"expected at most {MAX_FILE_BYTES} bytes, found more")
    try:
        return _Reader(source, Table.root(model, b"TFL3")).read()
    except FlatbufferError as error:
        raise ModelError(source, f"not a TFLite file: {error}") from error


def port_name(tensor_name: str) -> str:
    """A tensor's name without what TensorFlow's converter puts around it.

    >>> port_name("action_callee_users:0"), port_name("serving_default_mask:0"), port_name("x")
    ('callee_users', 'mask', 'x')
    """
    match = _DECORATION.match(tensor_name)
    return match.group("name") if match else tensor_name


def read_graph(path: Path) -> bytes:
    """A TFLite file's bytes, `MAX_FILE_BYTES` at most."""
    try:
        return read_bounded(path, MAX_FILE_BYTES)
    except OSError as error:
        raise unreadable(error, str(path)) from error


class _Reader:
    def __init__(self, source: str, model: Table) -> None:
        self._source = source
        self._model = model
        version = model.integer(0, kind="Uint32")
        if version != _SCHEMA_VERSION:
            raise self._error(f"expected schema version {_SCHEMA_VERSION}, found {version}")
        self._buffers = model.tables(4, _MAX_ITEMS)
        self._tensors: tuple[Tensor, ...] = ()
        self._budget = Budget(self._error, inputs_and_outputs_of_operators=MAX_OPERANDS)

    def read(self) -> Graph:
        subgraphs = self._model.tables(2, _MAX_ITEMS)
        if len(subgraphs) != 1:
            raise self._error(f"expected 1 subgraph, found {len(subgraphs)}")
        (subgraph,) = subgraphs
        inputs, outputs = subgraph.integers(1, _MAX_ITEMS), subgraph.integers(2, _MAX_ITEMS)
        given = set(inputs)
        self._tensors = tuple(
            self._tensor(number, table, is_given=number in given)
            for number, table in enumerate(subgraph.tables(0, _MAX_ITEMS))
        )
        input_names, output_names = self._signature()
        return Graph(
            source=self._source,
            tensors=self._tensors,
            operators=self._operators(subgraph),
            inputs=tuple(Port(self._name(each, input_names), each) for each in inputs),
            outputs=tuple(Port(self._name(each, output_names), each) for each in outputs),
        )

    def _error(self, message: str) -> ModelError:
        return ModelError(self._source, message)

    def _name(self, number: int, names: dict[int, str]) -> str:
        if not 0 <= number < len(self._tensors):
            raise self._error(f"expected a tensor of 0 to {len(self._tensors) - 1}, found {number}")
        return names.get(number) or port_name(self._tensors[number].name)

    def _tensor(self, number: int, table: Table, *, is_given: bool) -> Tensor:
        name = table.text(3) or f"#{number}"
        shape = table.integers(0, MAX_RANK)
        signature = table.integers(7, MAX_RANK)
        if any(size < 0 for size in (*shape, *signature)):
            raise self._error(
                f"tensor {name!r}: expected a fixed shape, found {list(signature or shape)}"
            )
        code = table.integer(1, kind="Int8")
        dtype = TENSOR_TYPES.get(code, f"type {code}")
        if table.has(6) or table.integer(5, kind="Bool"):
            raise self._error(f"tensor {name!r}: expected neither a sparse one nor a variable")
        quantization = table.table(4)
        if quantization is not None and quantization.integers(2, _MAX_ITEMS):
            raise self._error(f"tensor {name!r}: expected no quantization, found some")
        data = None if is_given else self._data(name, table.integer(2, kind="Uint32"))
        if not is_given and 0 in shape:
            data = b""
        try:
            return Tensor(name, dtype, shape, data)
        except ModelError as error:
            raise self._error(f"tensor {name!r}: {str(error).partition(': ')[2]}") from error

    def _data(self, name: str, number: int) -> bytes | None:
        if number >= len(self._buffers):
            raise self._error(
                f"tensor {name!r}: expected a buffer of 0 to {len(self._buffers) - 1}, "
                f"found {number}"
            )
        if self._buffers[number].integer(1, kind="Uint64"):
            raise self._error(f"tensor {name!r}: expected its data inside the FlatBuffer")
        return self._buffers[number].data(0) or None

    def _operators(self, subgraph: Table) -> tuple[Operator, ...]:
        kinds = [self._kind(table) for table in self._model.tables(1, _MAX_ITEMS)]
        return tuple(self._operator(table, kinds) for table in subgraph.tables(3, _MAX_ITEMS))

    def _kind(self, table: Table) -> str:
        # Old files have the number in a byte, in which 127 means: see the wider field.
        code = max(table.integer(0, kind="Int8"), table.integer(3))
        name = BUILTIN_NAMES[code] if 0 <= code < len(BUILTIN_NAMES) else str(code)
        return f"{name} {table.text(1)}" if name == "CUSTOM" else name

    def _operator(self, table: Table, kinds: list[str]) -> Operator:
        index = table.integer(0, kind="Uint32")
        if index >= len(kinds):
            raise self._error(f"expected an operator of 0 to {len(kinds) - 1}, found {index}")
        inputs, outputs = table.integers(1, _MAX_ITEMS), table.integers(2, _MAX_ITEMS)
        self._budget.charge(inputs_and_outputs_of_operators=len(inputs) + len(outputs))
        kind = kinds[index]
        if kind not in OPERATORS:
            names = [self._tensors[each].name for each in outputs if 0 <= each < len(self._tensors)]
            raise self._error(
                f"operator {kind} of tensor {', '.join(map(repr, names))}: not supported"
            )
        options = table.table(4)
        attributes = {each.name: self._attribute(each, options) for each in OPERATORS[kind]}
        return Operator(kind, inputs, outputs, attributes)

    def _attribute(self, option: Option, options: Table | None) -> Attribute:
        if option.kind == "activation":
            code = options.integer(option.field, kind="Int8") if options else 0
            return ACTIVATIONS.get(code, f"activation {code}")
        if option.kind == "reals":
            return options.reals(option.field, _MAX_ITEMS) if options else ()
        if option.kind == "Float32":
            return options.real(option.field, option.default) if options else option.default
        return options.integer(option.field, kind=option.kind) if options else option.default

    def _signature(self) -> tuple[dict[int, str], dict[int, str]]:
        """The names of inputs and outputs in the signature ``action``, or else in the first."""
        signatures = self._model.tables(7, _MAX_ITEMS)
        signatures.sort(key=lambda table: table.text(2) != "action")
        if not signatures:
            return {}, {}
        maps = [
            {
                each.integer(1, kind="Uint32"): each.text(0)
                for each in signatures[0].tables(field, _MAX_ITEMS)
            }
            for field in (0, 1)
        ]
        return maps[0], maps[1]

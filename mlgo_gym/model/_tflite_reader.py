"""Reads a ``.tflite`` file into a `Graph`.

Files may be broken or hostile: whatever is in them ends in a `Graph` or in a `ModelError` that
names the file, and memory stays within a small multiple of the file's size.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from corpus_tools.budget import Budget
from mlgo_gym.base import ModelError, read_bounded
from mlgo_gym.model._flatbuffer import FlatbufferError, Table
from mlgo_gym.model._graph import MAX_RANK, Attribute, Graph, Operator, Port, Tensor
from mlgo_gym.model._output_spec import unreadable
from mlgo_gym.model._tflite_schema import (
    ACTIVATIONS,
    BUILTIN_NAMES,
    OPERATORS,
    TENSOR_TYPES,
    Option,
)

MAX_FILE_BYTES: Final = 1 << 24
"""The largest file that is read, 16 MiB; policies have some hundred kilobytes."""

MAX_OPERANDS: Final = 1 << 16
"""The most inputs and outputs that all operators may have together."""

_MAX_ITEMS: Final = 1 << 12
_SCHEMA_VERSION: Final = 3
_DECORATION: Final = re.compile(r"^(?:serving_default_|action_)?(?P<name>.+?)(?::\d+)?$", re.DOTALL)


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

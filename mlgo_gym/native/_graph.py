"""A policy as a graph of operators over tensors of fixed shape, independent of its file format."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from mlgo_gym.errors import ModelError

DTYPES: Final[Mapping[str, np.dtype[Any]]] = {
    "float32": np.dtype("<f4"),
    "int32": np.dtype("<i4"),
    "int64": np.dtype("<i8"),
    "bool": np.dtype("?"),
}
"""The types of elements; a ``bool`` is a byte of 0 or 1."""

MAX_ELEMENTS: Final = 1 << 24
"""The most elements that one tensor may have."""

MAX_RANK: Final = 8
"""The most dimensions that one tensor may have."""

Attribute = int | float | bool | str | tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Tensor:
    """A value of the graph.

    Attributes:
        name: as the file calls it.
        dtype: one of `DTYPES`.
        shape: the dimensions; ``()`` is a scalar; only constants, such as a list of axes, can be
            empty.
        data: a constant's elements in row-major order and little-endian bytes; ``None`` for what
            is computed or given.

    Raises:
        ModelError: a field is out of range, or the data has another length.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    data: bytes | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if self.dtype not in DTYPES:
            raise ModelError(
                self.name, f"expected a type out of {', '.join(DTYPES)}, found {self.dtype}"
            )
        if len(self.shape) > MAX_RANK or not all(0 <= size <= MAX_ELEMENTS for size in self.shape):
            raise ModelError(
                self.name,
                f"expected at most {MAX_RANK} dimensions of 0 to {MAX_ELEMENTS} elements, "
                f"found {self.shape}",
            )
        if self.element_count > MAX_ELEMENTS:
            raise ModelError(
                self.name, f"expected at most {MAX_ELEMENTS} elements, found {self.element_count}"
            )
        if self.data is not None and len(self.data) != self.size_bytes:
            raise ModelError(
                self.name, f"expected {self.size_bytes} bytes of data, found {len(self.data)}"
            )

    @property
    def element_count(self) -> int:
        """How many elements it has."""
        return math.prod(self.shape)

    @property
    def size_bytes(self) -> int:
        """The size of all its elements in bytes."""
        return self.element_count * DTYPES[self.dtype].itemsize

    def values(self) -> np.ndarray[Any, Any]:
        """A constant's elements.

        Raises:
            ModelError: it is not a constant.
        """
        if self.data is None:
            raise ModelError(self.name, "expected a constant tensor, found a computed one")
        return np.frombuffer(self.data, DTYPES[self.dtype]).reshape(self.shape)


@dataclass(frozen=True, slots=True)
class Operator:
    """One step of the computation.

    Attributes:
        kind: TFLite's name of the operator, such as ``FULLY_CONNECTED``.
        inputs: numbers of tensors; -1 where an optional one is left out.
        outputs: numbers of tensors.
        attributes: the operator's settings by name.
    """

    kind: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    attributes: Mapping[str, Attribute]


@dataclass(frozen=True, slots=True)
class Port:
    """An input or output of the graph.

    Attributes:
        name: what callers bind to: the signature's name, or the tensor's without TensorFlow's
            decoration.
        tensor: the number of the tensor.
    """

    name: str
    tensor: int


@dataclass(frozen=True, slots=True)
class Graph:
    """Operators in the order of execution.

    Attributes:
        source: the file it came from, for errors.
        tensors: all values; operators and ports refer to them by number.
        operators: the steps; each reads only what is constant, given or computed before.
        inputs: what callers give.
        outputs: what callers get.

    Raises:
        ModelError: a number points nowhere, a tensor is written twice, read before it is written,
            or a name occurs twice among the inputs.

    >>> from mlgo_gym.model import find_model
    >>> from mlgo_gym.native import read_tflite
    >>> graph = read_tflite(find_model("inlining-for-size") + "/model.tflite")
    >>> len(graph.inputs), len(graph.outputs)
    (38, 1)
    """

    source: str
    tensors: tuple[Tensor, ...]
    operators: tuple[Operator, ...]
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]

    def __post_init__(self) -> None:
        known = {number for number, tensor in enumerate(self.tensors) if tensor.data is not None}
        for port in self.inputs:
            self._define(port.tensor, known, f"input {port.name!r}")
        for operator in self.operators:
            for number in operator.inputs:
                if number != -1:
                    self._check_known(number, known, f"operator {operator.kind}")
            for number in operator.outputs:
                self._define(number, known, f"operator {operator.kind}")
        if not self.inputs or not self.outputs:
            raise ModelError(
                self.source,
                f"expected inputs and outputs, found {len(self.inputs)} and {len(self.outputs)}",
            )
        for port in self.outputs:
            self._check_known(port.tensor, known, f"output {port.name!r}")
        names = [port.name for port in self.inputs]
        if len(set(names)) != len(names):
            raise ModelError(self.source, f"expected inputs with different names, found {names}")

    def _define(self, number: int, known: set[int], who: str) -> None:
        self._check_number(number, who)
        if number in known:
            raise ModelError(
                self.source, f"{who}: tensor {self.tensors[number].name!r} has a value already"
            )
        known.add(number)

    def _check_known(self, number: int, known: set[int], who: str) -> None:
        self._check_number(number, who)
        if number not in known:
            raise ModelError(
                self.source, f"{who}: tensor {self.tensors[number].name!r} has no value yet"
            )

    def _check_number(self, number: int, who: str) -> None:
        if not 0 <= number < len(self.tensors):
            raise ModelError(
                self.source,
                f"{who}: expected a tensor of 0 to {len(self.tensors) - 1}, found {number}",
            )

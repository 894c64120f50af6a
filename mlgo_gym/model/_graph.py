"""A policy as a graph of operators over tensors of fixed shape, independent of its file format."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from mlgo_gym.base import ModelError

DTYPES: Final[Mapping[str, np.dtype[Any]]] = {
    "float32": np.dtype("<f4"),
    "float64": np.dtype("<f8"),
    **{f"int{8 * size}": np.dtype(f"<i{size}") for size in (1, 2, 4, 8)},
    **{f"uint{8 * size}": np.dtype(f"<u{size}") for size in (1, 2, 4, 8)},
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
    """A value; of constants, which may be empty, the data are row-major and little-endian."""

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
        if (count := math.prod(size or 1 for size in self.shape)) > MAX_ELEMENTS:
            raise ModelError(self.name, f"expected at most {MAX_ELEMENTS} elements, found {count}")
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
        """A constant's elements."""
        if self.data is None:
            raise ModelError(self.name, "expected a constant tensor, found a computed one")
        return np.frombuffer(self.data, DTYPES[self.dtype]).reshape(self.shape)


@dataclass(frozen=True, slots=True)
class Operator:
    """One step: TFLite's name of it, and numbers of tensors, -1 for one that is left out."""

    kind: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    attributes: Mapping[str, Attribute]


@dataclass(frozen=True, slots=True)
class Port:
    """An input or output: a tensor's number, and its name in the signature, or else its own."""

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
    >>> from mlgo_gym.model import read_tflite
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
            self._check(port.tensor, known, f"input {port.name!r}", has_value=False)
        for operator in self.operators:
            for number in operator.inputs:
                if number != -1:
                    self._check(number, known, f"operator {operator.kind}", has_value=True)
            for number in operator.outputs:
                self._check(number, known, f"operator {operator.kind}", has_value=False)
        if not self.inputs or not self.outputs:
            raise ModelError(
                self.source,
                f"expected inputs and outputs, found {len(self.inputs)} and {len(self.outputs)}",
            )
        for port in self.outputs:
            self._check(port.tensor, known, f"output {port.name!r}", has_value=True)
        names = [port.name for port in self.inputs]
        if len(set(names)) != len(names):
            raise ModelError(self.source, f"expected inputs with different names, found {names}")

    def _check(self, number: int, known: set[int], who: str, *, has_value: bool) -> None:
        if not 0 <= number < len(self.tensors):
            raise ModelError(
                self.source,
                f"{who}: expected a tensor of 0 to {len(self.tensors) - 1}, found {number}",
            )
        if (number in known) != has_value:
            found = "no value yet" if has_value else "a value already"
            raise ModelError(
                self.source, f"{who}: tensor {self.tensors[number].name!r} has {found}"
            )
        known.add(number)

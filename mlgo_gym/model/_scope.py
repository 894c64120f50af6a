"""Helpers that the lowerings of operators share: places of tensors, and errors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from mlgo_gym.base import ModelError
from mlgo_gym.model._graph import MAX_RANK, Attribute, Graph, Operator, Port, Tensor
from mlgo_gym.model._writer import ALIGNMENT, Writer

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

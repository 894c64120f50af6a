"""The interface that lowerings write to: `_ir` makes LLVM IR of it, `_c_writer` C.

Methods that return text return an operand: what holds a value, an address or a variable in the
language that is written. A kind is a type of elements (`model._graph.DTYPES`; a ``bool`` in memory
is a byte of 0 or 1) or ``test``, the outcome of a comparison. Offsets count elements and are
operands of ``int64``.

Every language computes the same, bit for bit, on CPUs that agree on one thing: whether the product
in `Writer.multiply_add` is rounded by itself or, where the CPU does both in one step, not at all.
"""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import ClassVar, Final

ALIGNMENT: Final = 64
"""Bytes to which constants and scratch memory are aligned: a cache line, and the widest vector."""

LANES: Final = 16
"""How many partial sums `Writer.sum` has."""

OWN_FUNCTION_COST: Final = 32
"""The count of a call of one of `model._functions`: about as many instructions as it has."""

MULTIPLY_ADD_COST: Final = 2
"""The count of `Writer.multiply_add`."""

FLOATS: Final = frozenset({"float32", "float64"})


@dataclass(frozen=True, slots=True)
class WeightRows:
    """Weights in memory: for each input, a step of elements apart, those of some outputs."""

    pointer: str
    inputs: int
    width: int
    step: int


class Writer(ABC):
    """A function's body.

    Attributes:
        evaluated: how many instructions one evaluation runs through, before they are optimised.
        LINES: what `length` counts.
    """

    LINES: ClassVar[str]

    def __init__(self) -> None:
        self.evaluated = 0

    @property
    @abstractmethod
    def length(self) -> int:
        """How many lines there are."""

    # Values

    @abstractmethod
    def literal(self, kind: str, value: float) -> str:
        """A constant."""

    @abstractmethod
    def binary(self, operation: str, kind: str, left: str, right: str) -> str:
        """``add``, ``sub``, ``mul``, ``div``, ``and``, ``or``, ``xor``; integers wrap around.

        Of ``int32`` also ``shl`` and ``ashr``. Dividing, integers are not 0 and do not overflow.
        """

    @abstractmethod
    def multiply_add(self, left: str, right: str, addend: str) -> str:
        """``left * right + addend`` of ``float32``."""

    @abstractmethod
    def compare(self, relation: str, kind: str, left: str, right: str) -> str:
        """``lt``, ``le``, ``gt``, ``ge``, ``eq`` or ``ne``; of NaN only ``ne`` holds."""

    @abstractmethod
    def select(self, test: str, kind: str, chosen: str, other: str) -> str:
        """One of two values; both are computed."""

    @abstractmethod
    def convert(self, kind: str, target: str, value: str) -> str:
        """C's conversion; a float beyond an integer's range becomes the nearest one, NaN 0."""

    @abstractmethod
    def reinterpret(self, kind: str, target: str, value: str) -> str:
        """Return the same bits as ``float32`` or ``int32``."""

    @abstractmethod
    def call(self, function: str, kind: str, value: str) -> str:
        """``neg``, ``abs``, and of ``float32`` ``sqrt``, ``floor``, ``ceil`` and our own."""

    @abstractmethod
    def copy_sign(self, value: str, sign: str) -> str:
        """A ``float32`` with the sign of another."""

    # Memory

    @abstractmethod
    def variable(self, kind: str) -> str:
        """Reserve memory for one value."""

    @abstractmethod
    def get(self, kind: str, variable: str) -> str:
        """A variable's value."""

    @abstractmethod
    def put(self, kind: str, value: str, variable: str) -> None:
        """Let a variable have another value."""

    @abstractmethod
    def load(self, kind: str, pointer: str, offset: str = "0") -> str:
        """An element in memory."""

    @abstractmethod
    def store(self, kind: str, value: str, pointer: str, offset: str = "0") -> None:
        """Change an element in memory."""

    @abstractmethod
    def address(self, kind: str, pointer: str, offset: str) -> str:
        """Return the address of the element at an offset."""

    @abstractmethod
    def constant(self, kind: str, data: bytes, about: str) -> str:
        """Place elements in read-only memory; what they are about is for readers."""

    @abstractmethod
    def scratch(self, kind: str, size_bytes: int) -> str:
        """Reserve memory on the stack, aligned and of a multiple of `ALIGNMENT`."""

    @abstractmethod
    def input(self, number: int, kind: str, name: str) -> str:
        """Return the place of an input; its name is for readers."""

    @abstractmethod
    def output(self, number: int, kind: str, pointer: str, count: int) -> None:
        """Copy elements to an output."""

    # Control

    @abstractmethod
    @contextlib.contextmanager
    def loop(self, count: int) -> Iterator[str]:
        """Repeat what is written inside, ``count`` (at least 1) times; gives the index."""
        yield ""

    @abstractmethod
    def require(self, test: str, code: int) -> None:
        """Let the function's result be a code where a test fails, and none failed before."""

    @abstractmethod
    def note(self, text: str) -> None:
        """Tell a reader what follows."""

    def within(self, name: str) -> AbstractContextManager[None]:  # noqa: ARG002 - for who profiles
        """Give everything written inside this origin, and the origins around it."""
        return nullcontext()

    # Sums of ``float32``, in an order that suits a CPU's vectors

    @abstractmethod
    def block(
        self, source: str, target: tuple[str, int], rows: WeightRows, biases: str | None
    ) -> None:
        """Sums over the inputs, side by side; they are stored from an offset of the target on."""

    @abstractmethod
    def sum(self, places: Sequence[str], count: int, first: str) -> str:
        """A value, and the sum of a row's elements or of the products of two rows'.

        Element i goes into sum i modulo `LANES` as long as there are so many; the halves of the
        sums are added until one is left, and that to the value; elements that remain follow one by
        one.
        """

    # What all languages share

    def scaled(self, index: str, stride: int) -> str:
        """``index * stride``."""
        if index == "0" or stride == 0:
            return "0"
        return index if stride == 1 else self._scaled(index, stride)

    def plus(self, left: str, right: str) -> str:
        """``left + right`` of two offsets."""
        if left == "0" or right == "0":
            return right if left == "0" else left
        return self._plus(left, right)

    @abstractmethod
    def _scaled(self, index: str, stride: int) -> str: ...

    @abstractmethod
    def _plus(self, left: str, right: str) -> str: ...

    @contextlib.contextmanager
    def nest(self, sizes: Sequence[int], strides: Sequence[Sequence[int]]) -> Iterator[list[str]]:
        """Loops over a shape; gives each operand's offset by its strides in elements, 0 to stay."""
        sizes, strides = _merged(sizes, strides)
        with contextlib.ExitStack() as stack:
            offsets = ["0"] * len(strides)
            for dimension, size in enumerate(sizes):
                index = stack.enter_context(self.loop(size))
                offsets = [
                    self.plus(offset, self.scaled(index, steps[dimension]))
                    for offset, steps in zip(offsets, strides, strict=True)
                ]
            yield offsets


def _merged(
    sizes: Sequence[int], strides: Sequence[Sequence[int]]
) -> tuple[list[int], list[list[int]]]:
    """Drop dimensions of size 1 and join neighbours that every operand walks in one stride."""
    merged_sizes: list[int] = []
    merged: list[list[int]] = [[] for _ in strides]
    for dimension, size in enumerate(sizes):
        if size == 1:
            continue
        steps = [operand[dimension] for operand in strides]
        if merged_sizes and all(
            kept[-1] == step * size for kept, step in zip(merged, steps, strict=True)
        ):
            merged_sizes[-1] *= size
            for kept, step in zip(merged, steps, strict=True):
                kept[-1] = step
        else:
            merged_sizes.append(size)
            for kept, step in zip(merged, steps, strict=True):
                kept.append(step)
    return merged_sizes, merged

"""Writes the text of one LLVM function: registers, loops, loads and stores.

Types of elements in memory: ``float``, ``i32``, ``i64`` and, for ``bool``, ``i8`` of 0 or 1.
Offsets count elements and are registers or literals of type ``i64``.
"""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Iterator, Sequence
from typing import Final

ALIGNMENT: Final = 64
"""Bytes to which constants and scratch memory are aligned: a cache line, and the widest vector."""

ELEMENT_TYPES: Final = {"float32": "float", "int32": "i32", "int64": "i64", "bool": "i8"}


def float_literal(value: float) -> str:
    """A ``float`` constant as LLVM writes it: the bits of the double that equals it.

    >>> float_literal(0.5)
    '0x3fe0000000000000'
    """
    (rounded,) = struct.unpack("<f", struct.pack("<f", value))
    return "0x" + struct.pack(">d", rounded).hex()


def literal(kind: str, value: float) -> str:
    """A constant of a type of elements."""
    return float_literal(value) if kind == "float" else str(int(value))


def constant_bytes(name: str, data: bytes) -> str:
    r"""A private constant that holds these bytes; text of bytes is what LLVM parses fastest.

    >>> print(constant_bytes("@c0", bytes([1, 171])))
    @c0 = internal unnamed_addr constant [2 x i8] c"\01\ab", align 64
    """
    text = f"\\{data.hex(_ESCAPE)}" if data else ""
    return (
        f'{name} = internal unnamed_addr constant [{len(data)} x i8] c"{text}", align {ALIGNMENT}'
    )


_ESCAPE: Final = "\\"
_OWN_FUNCTION: Final = "@mlgo."
_OWN_FUNCTION_COST: Final = 32
"""What a call of one of `native._functions` counts for: about as many instructions as it has."""


class FunctionWriter:
    """The lines of a function's body; every method that returns text returns an operand.

    Attributes:
        evaluated: how many instructions one evaluation runs through, before LLVM optimises them.
    """

    def __init__(self) -> None:
        self.evaluated = 0
        self._repeats = 1
        self._entry: list[str] = []
        self._lines: list[str] = []
        self._count = 0
        self._block = "start"

    def text(self) -> str:
        """The body, without the function's braces."""
        return "\n".join(["entry:", *self._entry, "  br label %start", "start:", *self._lines])

    @property
    def length(self) -> int:
        """How many lines there are."""
        return len(self._entry) + len(self._lines)

    def emit(self, instruction: str) -> None:
        """Append an instruction that has no result."""
        cost = _OWN_FUNCTION_COST if _OWN_FUNCTION in instruction else 1
        self.evaluated += cost * self._repeats
        self._lines.append("  " + instruction)

    def value(self, instruction: str) -> str:
        """Append an instruction and name its result."""
        register = self._fresh("v")
        self.emit(f"{register} = {instruction}")
        return register

    def allocate(self, kind: str, alignment: int | None = None) -> str:
        """Reserve memory on the stack for the whole call."""
        register = self._fresh("m")
        suffix = f", align {alignment}" if alignment else ""
        self._entry.append(f"  {register} = alloca {kind}{suffix}")
        return register

    def load(self, kind: str, pointer: str, offset: str = "0", alignment: int | None = None) -> str:
        """Load an element of type ``kind``."""
        suffix = f", align {alignment}" if alignment else ""
        return self.value(f"load {kind}, ptr {self.address(kind, pointer, offset)}{suffix}")

    def store(
        self, kind: str, value: str, pointer: str, offset: str = "0", alignment: int | None = None
    ) -> None:
        """Store an element of type ``kind``."""
        suffix = f", align {alignment}" if alignment else ""
        self.emit(f"store {kind} {value}, ptr {self.address(kind, pointer, offset)}{suffix}")

    def address(self, kind: str, pointer: str, offset: str) -> str:
        """Where the element at an offset is."""
        if offset == "0":
            return pointer
        return self.value(f"getelementptr inbounds {kind}, ptr {pointer}, i64 {offset}")

    def scaled(self, index: str, stride: int) -> str:
        """``index * stride``."""
        if index == "0" or stride == 0:
            return "0"
        return index if stride == 1 else self.value(f"mul nsw i64 {index}, {stride}")

    def plus(self, left: str, right: str) -> str:
        """``left + right`` of two offsets."""
        if left == "0" or right == "0":
            return right if left == "0" else left
        return self.value(f"add nsw i64 {left}, {right}")

    @contextlib.contextmanager
    def loop(self, count: int) -> Iterator[str]:
        """Repeat what is written inside, ``count`` (at least 1) times; gives the index."""
        if count == 1:
            yield "0"
            return
        name, before = self._fresh("l")[1:], self._block
        index = f"%{name}.i"
        self.emit(f"br label %{name}.body")
        self._start(f"{name}.body")
        self._repeats *= count
        self.emit(f"{index} = phi i64 [ 0, %{before} ], [ {index}.next, %{name}.latch ]")
        yield index
        self.emit(f"br label %{name}.latch")
        self._start(f"{name}.latch")
        self.emit(f"{index}.next = add nuw nsw i64 {index}, 1")
        done = self.value(f"icmp eq i64 {index}.next, {count}")
        self.emit(f"br i1 {done}, label %{name}.exit, label %{name}.body")
        self._repeats //= count
        self._start(f"{name}.exit")

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

    def _fresh(self, prefix: str) -> str:
        self._count += 1
        return f"%{prefix}{self._count}"

    def _start(self, block: str) -> None:
        self._lines.append(f"{block}:")
        self._block = block


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

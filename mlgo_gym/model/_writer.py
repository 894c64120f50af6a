"""The interface that lowerings write to: `_ir` makes LLVM IR of it, `_c_writer` C.

Methods that return text return an operand: what holds a value, an address or a variable in the
language that is written. A kind is a type of elements (`model._graph.DTYPES`; a ``bool`` in memory
is a byte of 0 or 1) or ``test``, the outcome of a comparison. Offsets count elements and are
operands of ``int64``.

Every language computes the same, bit for bit, on CPUs that agree on one thing: whether the product
in `Writer.multiply_add` is rounded by itself or, where the CPU does both in one step, not at all.

Elementary functions are written in terms of it: no libm is behind them, and loops of them
vectorise. The polynomials are those of Cephes (``expf.c``, ``logf.c``, ``tanhf.c``; S. L. Moshier),
accurate to about 2 units in the last place. Each handles infinities, NaN and denormal numbers as
libm does.
"""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import ClassVar, Final

ALIGNMENT: Final = 64
"""Bytes to which constants and scratch memory are aligned: a cache line, and the widest vector."""

LANES: Final = 16
"""How many partial sums `Writer.sum` has."""

OWN_FUNCTION_COST: Final = 32
"""The count of a call of one of `FUNCTIONS`: about as many instructions as it has."""

MULTIPLY_ADD_COST: Final = 2
"""The count of `Writer.multiply_add`."""

FLOATS: Final = frozenset({"float32", "float64"})
_EXP_POLYNOMIAL: Final = (
    1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1,
    5.0000001201e-1,
)  # fmt: skip
_LOG_POLYNOMIAL: Final = (
    7.0376836292e-2, -1.1514610310e-1, 1.1676998740e-1, -1.2420140846e-1, 1.4249322787e-1,
    -1.6668057665e-1, 2.0000714765e-1, -2.4999993993e-1, 3.3333331174e-1,
)  # fmt: skip
_TANH_POLYNOMIAL: Final = (
    -5.70498872745e-3, 2.06390887954e-2, -5.37397155531e-2, 1.33314422036e-1, -3.33332819422e-1,
)  # fmt: skip
_LN2_HIGH: Final = 0.693359375
_LN2_LOW: Final = -2.12194440e-4
_LOG2_E: Final = 1.44269504088896341


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


class _Floats:
    """Arithmetic of ``float32``, and of ``int32`` for its bits."""

    def __init__(self, writer: Writer) -> None:
        self.writer: Final = writer

    def number(self, value: float) -> str:
        return self.writer.literal("float32", value)

    def add(self, left: str, right: str | float) -> str:
        return self.writer.binary("add", "float32", left, self._operand(right))

    def times(self, left: str, right: str | float) -> str:
        return self.writer.binary("mul", "float32", left, self._operand(right))

    def over(self, left: float, right: str) -> str:
        return self.writer.binary("div", "float32", self.number(left), right)

    def multiply_add(self, left: str, right: str | float, addend: str | float) -> str:
        return self.writer.multiply_add(left, self._operand(right), self._operand(addend))

    def integer(self, operation: str, left: str, right: str | int) -> str:
        return self.writer.binary(operation, "int32", left, str(right))

    def choose(self, relation: str, left: str, right: float, chosen: str, other: str) -> str:
        """The one value where ``left`` is so to ``right``, or else the other."""
        test = self.writer.compare(relation, "float32", left, self.number(right))
        return self.writer.select(test, "float32", chosen, other)

    def polynomial(self, x: str, coefficients: Sequence[float]) -> str:
        value = self.number(coefficients[0])
        for coefficient in coefficients[1:]:
            value = self.multiply_add(value, x, coefficient)
        return value

    def _operand(self, value: str | float) -> str:
        return value if isinstance(value, str) else self.number(value)


def _exp(writer: Writer, x: str) -> str:
    """``2^n * e^r``, with the power in two factors so that both ends of the range come out."""
    do = _Floats(writer)
    a = do.choose("lt", x, -110.0, do.number(-110.0), x)
    a = do.choose("gt", a, 90.0, do.number(90.0), a)
    n = writer.call("floor", "float32", do.add(do.times(a, _LOG2_E), 0.5))
    r = do.multiply_add(n, -_LN2_HIGH, a)
    r = do.multiply_add(n, -_LN2_LOW, r)
    y = do.multiply_add(do.polynomial(r, _EXP_POLYNOMIAL), do.times(r, r), r)
    y = do.add(y, 1.0)
    power = writer.convert("float32", "int32", n)
    half = do.integer("ashr", power, 1)
    for part in (half, do.integer("sub", power, half)):
        bits = do.integer("shl", do.integer("add", part, 127), 23)
        y = do.times(y, writer.reinterpret("int32", "float32", bits))
    return y


def _log(writer: Writer, x: str) -> str:
    """``e * ln 2 + ln m`` with m between the roots of one half and of two."""
    do = _Floats(writer)
    tiny, infinity = 2.0**-126, float("inf")
    a = do.choose("lt", x, tiny, do.times(x, 2.0**25), x)
    shift = do.choose("lt", x, tiny, do.number(-25.0), do.number(0.0))
    bits = writer.reinterpret("float32", "int32", a)
    power = do.integer("ashr", do.integer("sub", bits, 0x3F3504F3), 23)
    rest = do.integer("sub", bits, do.integer("shl", power, 23))
    m = writer.reinterpret("int32", "float32", rest)
    e = do.add(writer.convert("int32", "float32", power), shift)
    f = do.add(m, -1.0)
    z = do.times(f, f)
    y = do.times(do.polynomial(f, _LOG_POLYNOMIAL), f)
    y = do.multiply_add(y, z, do.times(e, _LN2_LOW))
    y = do.multiply_add(z, -0.5, y)
    y = do.multiply_add(e, _LN2_HIGH, do.add(y, f))
    y = do.choose("lt", x, infinity, y, x)
    y = do.choose("eq", x, 0.0, do.number(-infinity), y)
    return do.choose("lt", x, 0.0, do.number(float("nan")), y)


def _tanh(writer: Writer, x: str) -> str:
    """A polynomial near 0, ``1 - 2 / (e^2|x| + 1)`` elsewhere."""
    do = _Floats(writer)
    a = writer.call("abs", "float32", x)
    z = do.times(x, x)
    near = do.multiply_add(do.times(do.polynomial(z, _TANH_POLYNOMIAL), z), x, x)
    e = writer.call("exp", "float32", do.add(a, a))
    far = writer.copy_sign(do.add(do.over(-2.0, do.add(e, 1.0)), 1.0), x)
    return do.choose("lt", a, 0.625, near, far)


def _logistic(writer: Writer, x: str) -> str:
    """``1 / (1 + e^-x)``."""
    do = _Floats(writer)
    e = writer.call("exp", "float32", writer.call("neg", "float32", x))
    return do.over(1.0, do.add(e, 1.0))


FUNCTIONS: Final[Mapping[str, Callable[[Writer, str], str]]] = {
    "exp": _exp,
    "log": _log,
    "tanh": _tanh,
    "logistic": _logistic,
}
"""Functions that `Writer.call` takes besides; ``float32`` alone."""

"""Elementary functions in terms of a `Writer`: no libm behind them, and loops of them vectorise.

The polynomials are those of Cephes (``expf.c``, ``logf.c``, ``tanhf.c``; S. L. Moshier), accurate
to about 2 units in the last place. Each handles infinities, NaN and denormal numbers as libm does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from mlgo_gym.model._writer import Writer

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

"""Elementary functions as LLVM IR: no libm behind them, and loops around them vectorise.

The polynomials are those of Cephes (``expf.c``, ``logf.c``, ``tanhf.c``; S. L. Moshier), accurate
to about 2 units in the last place. Each handles infinities, NaN and denormal numbers as libm does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from mlgo_gym.native._ir import float_literal

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


def definitions(text: str) -> str:
    """The definitions of the functions that a body calls, one after the other."""
    needed: list[str] = []
    todo = [name for name in _FUNCTIONS if f"@{name}(" in text]
    while todo:
        name = todo.pop()
        if name not in needed:
            needed.append(name)
            todo += [each for each in _FUNCTIONS if f"@{each}(" in _FUNCTIONS[name]]
    return "\n".join(_FUNCTIONS[name] for name in sorted(needed))


def _horner(x: str, coefficients: Sequence[float], prefix: str) -> list[str]:
    """Lines that leave the polynomial's value in ``%{prefix}``."""
    lines, value = [], float_literal(coefficients[0])
    for number, coefficient in enumerate(coefficients[1:], 1):
        name = f"%{prefix}" if number == len(coefficients) - 1 else f"%{prefix}.{number}"
        lines += [
            f"%{prefix}.m{number} = fmul contract float {value}, {x}",
            f"{name} = fadd contract float %{prefix}.m{number}, {float_literal(coefficient)}",
        ]
        value = name
    return lines


def _define(name: str, lines: list[str]) -> str:
    body = "\n".join("  " + line for line in lines)
    return f"define internal float @{name}(float %x) alwaysinline nounwind {{\n{body}\n}}"


def _exp() -> str:
    """``2^n * e^r``, with the power in two factors so that both ends of the range come out."""
    return _define(
        "mlgo.exp",
        [
            f"%is.low = fcmp olt float %x, {float_literal(-110.0)}",
            f"%raised = select i1 %is.low, float {float_literal(-110.0)}, float %x",
            f"%is.high = fcmp ogt float %raised, {float_literal(90.0)}",
            f"%a = select i1 %is.high, float {float_literal(90.0)}, float %raised",
            f"%scaled = fmul float %a, {float_literal(1.44269504088896341)}",
            f"%shifted = fadd float %scaled, {float_literal(0.5)}",
            "%n = call float @llvm.floor.f32(float %shifted)",
            f"%high = fmul contract float %n, {float_literal(-_LN2_HIGH)}",
            "%r1 = fadd contract float %a, %high",
            f"%low = fmul contract float %n, {float_literal(-_LN2_LOW)}",
            "%r = fadd contract float %r1, %low",
            *_horner("%r", _EXP_POLYNOMIAL, "p"),
            "%r.r = fmul contract float %r, %r",
            "%p.r = fmul contract float %p, %r.r",
            "%p.1r = fadd contract float %p.r, %r",
            f"%y = fadd contract float %p.1r, {float_literal(1.0)}",
            "%k = call i32 @llvm.fptosi.sat.i32.f32(float %n)",
            "%k1 = ashr i32 %k, 1",
            "%k2 = sub i32 %k, %k1",
            "%b1 = add i32 %k1, 127",
            "%b2 = add i32 %k2, 127",
            "%s1 = shl i32 %b1, 23",
            "%s2 = shl i32 %b2, 23",
            "%f1 = bitcast i32 %s1 to float",
            "%f2 = bitcast i32 %s2 to float",
            "%y1 = fmul float %y, %f1",
            "%y2 = fmul float %y1, %f2",
            "ret float %y2",
        ],
    )


def _log() -> str:
    """``e * ln 2 + ln m`` with m between the roots of one half and of two."""
    zero, infinity = float_literal(0.0), float_literal(float("inf"))
    return _define(
        "mlgo.log",
        [
            f"%is.small = fcmp olt float %x, {float_literal(2.0**-126)}",
            f"%up = fmul float %x, {float_literal(2.0**25)}",
            "%a = select i1 %is.small, float %up, float %x",
            f"%e0 = select i1 %is.small, float {float_literal(-25.0)}, float {zero}",
            "%bits = bitcast float %a to i32",
            f"%d = sub i32 %bits, {0x3F3504F3}",
            "%k = ashr i32 %d, 23",
            "%kbits = shl i32 %k, 23",
            "%mbits = sub i32 %bits, %kbits",
            "%m = bitcast i32 %mbits to float",
            "%kf = sitofp i32 %k to float",
            "%e = fadd float %kf, %e0",
            f"%f = fadd float %m, {float_literal(-1.0)}",
            "%z = fmul float %f, %f",
            *_horner("%f", _LOG_POLYNOMIAL, "p"),
            "%pf = fmul contract float %p, %f",
            "%pz = fmul contract float %pf, %z",
            f"%el = fmul contract float %e, {float_literal(_LN2_LOW)}",
            "%y1 = fadd contract float %pz, %el",
            f"%zh = fmul contract float %z, {float_literal(-0.5)}",
            "%y2 = fadd contract float %y1, %zh",
            "%y3 = fadd contract float %y2, %f",
            f"%eh = fmul contract float %e, {float_literal(_LN2_HIGH)}",
            "%y4 = fadd contract float %y3, %eh",
            f"%is.finite = fcmp olt float %x, {infinity}",
            "%y5 = select i1 %is.finite, float %y4, float %x",
            f"%is.zero = fcmp oeq float %x, {zero}",
            f"%y6 = select i1 %is.zero, float {float_literal(float('-inf'))}, float %y5",
            f"%is.negative = fcmp olt float %x, {zero}",
            f"%y7 = select i1 %is.negative, float {_NAN}, float %y6",
            "ret float %y7",
        ],
    )


def _tanh() -> str:
    """A polynomial near 0, ``1 - 2 / (e^2|x| + 1)`` elsewhere."""
    one = float_literal(1.0)
    return _define(
        "mlgo.tanh",
        [
            "%a = call float @llvm.fabs.f32(float %x)",
            "%z = fmul float %x, %x",
            *_horner("%z", _TANH_POLYNOMIAL, "p"),
            "%pz = fmul contract float %p, %z",
            "%pzx = fmul contract float %pz, %x",
            "%near = fadd contract float %pzx, %x",
            "%twice = fadd float %a, %a",
            "%e = call float @mlgo.exp(float %twice)",
            f"%e1 = fadd float %e, {one}",
            f"%q = fdiv float {float_literal(-2.0)}, %e1",
            f"%t = fadd float %q, {one}",
            "%far = call float @llvm.copysign.f32(float %t, float %x)",
            f"%is.near = fcmp olt float %a, {float_literal(0.625)}",
            "%y = select i1 %is.near, float %near, float %far",
            "ret float %y",
        ],
    )


def _logistic() -> str:
    """``1 / (1 + e^-x)``."""
    return _define(
        "mlgo.logistic",
        [
            "%n = fneg float %x",
            "%e = call float @mlgo.exp(float %n)",
            f"%d = fadd float %e, {float_literal(1.0)}",
            f"%y = fdiv float {float_literal(1.0)}, %d",
            "ret float %y",
        ],
    )


_NAN: Final = "0x7ff8000000000000"
_FUNCTIONS: Final = {
    "mlgo.exp": _exp(),
    "mlgo.log": _log(),
    "mlgo.tanh": _tanh(),
    "mlgo.logistic": _logistic(),
}

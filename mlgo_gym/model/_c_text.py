"""Pieces of C11: types, constants, comments, and the few functions that a file may need."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from mlgo_gym.model._graph import DTYPES
from mlgo_gym.model._writer import ALIGNMENT, FLOATS

TYPES: Final[Mapping[str, str]] = {
    "float32": "float",
    "float64": "double",
    "bool": "uint8_t",
    "test": "int",
    **{f"{sign}int{bits}": f"{sign}int{bits}_t" for sign in ("", "u") for bits in (8, 16, 32, 64)},
}

_UNPRINTED: Final = re.compile(r"[^A-Za-z0-9_ .,:;+()<>\[\]-]")
_COLUMNS: Final = 100


def comment(text: str) -> str:
    """A comment; whoever wrote its text cannot end it.

    >>> comment("a */ b")
    '/* a ?? b */'
    """
    return f"/* {_UNPRINTED.sub('?', text)} */"


def literal(kind: str, value: float) -> str:
    """A constant of a kind.

    >>> literal("float32", 0.1), literal("int64", -(2**63)), literal("uint8", 7)
    ('0.1f', 'INT64_MIN', '7')
    """
    if kind in FLOATS:
        return _floats(kind, [value])[0]
    number = int(value)
    if number == -(2**63):
        return "INT64_MIN"
    if kind in {"int64", "uint64"} and abs(number) >= 2**31:
        return f"{'U' if kind == 'uint64' else ''}INT64_C({number})"
    if number == -(2**31):
        return "INT32_MIN"
    return f"{number}u" if number >= 2**31 else str(number)


def _floats(kind: str, values: Any) -> list[str]:
    suffix = "f" if kind == "float32" else ""
    names = {"nan": "NAN", "inf": "INFINITY", "-inf": "-INFINITY"}
    texts = (str(value) for value in np.asarray(values, DTYPES[kind]))
    return [names.get(text) or f"{text}{suffix}" for text in texts]


def table(name: str, kind: str, data: bytes, about: str) -> str:
    """A constant table."""
    values = np.frombuffer(data, DTYPES[kind])
    if kind in FLOATS:
        texts = _floats(kind, values)
    else:
        texts = [literal(kind, int(value)) for value in values]
    lines, line = [], "   "
    for text in texts or ["0"]:
        if len(line) + len(text) + 2 > _COLUMNS:
            lines.append(line)
            line = "   "
        line += f" {text},"
    lines.append(line)
    head = f"static _Alignas({ALIGNMENT}) const {TYPES[kind]} {name}[{len(texts) or 1}] = {{"
    return "\n".join([comment(about), head, *lines, "};", ""])


def conversion(kind: str, target: str) -> str:
    """The body of a function from a float to the nearest integer in range; of NaN 0."""
    limits, float_type = np.iinfo(DTYPES[target]), DTYPES[kind].type
    high = float_type(limits.max)
    if int(high) > limits.max:
        high = np.nextafter(high, float_type(0))
    low, top = literal(kind, float(limits.min)), literal(kind, float(high))
    real, zero = TYPES[kind], literal(kind, 0)
    return f"""\
static inline {TYPES[target]} {{name}}_{kind}_to_{target}({real} x) {{{{
  const {real} is_number = x == x ? x : {zero};
  const {real} raised = is_number < {low} ? {low} : is_number;
  const {real} fitting = raised > {top} ? {top} : raised;
  return x > {top} ? {literal(target, int(limits.max))} : ({TYPES[target]})fitting;
}}}}
"""


HELPERS: Final[Mapping[str, str]] = {
    "bits": """\
static inline int32_t {name}_bits(float real) {{
  const union {{ float real; int32_t bits; }} both = {{real}};
  return both.bits;
}}
""",
    "real": """\
static inline float {name}_real(int32_t bits) {{
  const union {{ int32_t bits; float real; }} both = {{bits}};
  return both.real;
}}
""",
    "abs": """\
static inline float {name}_abs(float x) {{
  return {name}_real({name}_bits(x) & INT32_MAX);
}}
""",
    "copysign": """\
static inline float {name}_copysign(float x, float sign) {{
  return {name}_real(({name}_bits(x) & INT32_MAX) | ({name}_bits(sign) & INT32_MIN));
}}
""",
    "floor": """\
static inline float {name}_floor(float x) {{
#if defined(__SSE4_1__) || defined(__aarch64__)
  return __builtin_floorf(x); /* one instruction */
#else
  /* From 2^23 on there is nothing behind the point. */
  const int is_near = (x > -8388608.0f) & (x < 8388608.0f);
  const float near = is_near ? x : 0.0f;
  const float whole = (float)(int32_t)near;
  const float down = whole > near ? whole - 1.0f : whole;
  return !is_near || whole == near ? x : down;
#endif
}}
""",
    "ceil": """\
static inline float {name}_ceil(float x) {{
  return -{name}_floor(-x);
}}
""",
}
"""Functions by name, each after those that it needs; ``{name}`` is the model's."""

CONTRACTION: Final = """\
/* Products are rounded before they are added, except where FMA says otherwise. */
#if defined(__clang__)
#pragma STDC FP_CONTRACT OFF
#elif defined(__GNUC__)
#pragma GCC optimize("fp-contract=off")
#endif
"""

FUSED: Final = """\
#if defined(__FMA__) || defined(__aarch64__) || defined(__riscv_flen) || defined(__FP_FAST_FMAF)
#define FMA(a, b, c) __builtin_fmaf(a, b, c)
#else
#define FMA(a, b, c) ((a) * (b) + (c))
#endif
"""

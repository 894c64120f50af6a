"""Writes C11: one function with loops over arrays, and the tables and functions that it needs."""

from __future__ import annotations

import contextlib
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final

import numpy as np

from mlgo_gym.model._graph import DTYPES
from mlgo_gym.model._writer import (
    ALIGNMENT,
    FLOATS,
    FUNCTIONS,
    LANES,
    MULTIPLY_ADD_COST,
    OWN_FUNCTION_COST,
    WeightRows,
    Writer,
)

_COLUMNS: Final = 100
_VALUE: Final = re.compile(r"\bv_\d+\b")
_TIGHT: Final = re.compile(r"[\w.]+(\([^()]*\)|\[[^\[\]()]*\])?")
TYPES: Final[Mapping[str, str]] = {
    "float32": "float",
    "float64": "double",
    "bool": "uint8_t",
    "test": "int",
    **{f"{sign}int{bits}": f"{sign}int{bits}_t" for sign in ("", "u") for bits in (8, 16, 32, 64)},
}

_UNPRINTED: Final = re.compile(r"[^A-Za-z0-9_ .,:;+()<>\[\]-]")

_OPERATORS: Final = {
    "add": "+", "sub": "-", "mul": "*", "div": "/", "and": "&", "or": "|", "xor": "^",
    "shl": "<<", "ashr": ">>", "lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==",
    "ne": "!=",
}  # fmt: skip
_WRAPPING: Final = frozenset({"add", "sub", "mul", "shl"})
_TERM_COST: Final = MULTIPLY_ADD_COST + 1
_PLAIN: Final = re.compile(r"-?[\w.]+")


@dataclass(frozen=True, slots=True)
class _Line:
    """A line; of a value also its name, and the text up to where it begins."""

    depth: int
    text: str
    name: str = ""
    head: str = ""
    is_block: bool = False

    def full(self) -> str:
        text = f"{self.head}{self.text};" if self.name else self.text
        return f"{'  ' * self.depth}{text}" if text else ""


class CLines:
    """Lines in blocks."""

    def __init__(self) -> None:
        self._lines: Final[list[_Line]] = []
        self._depth = 1

    def __len__(self) -> int:
        return len(self._lines)

    def add(self, text: str) -> None:
        """Append a statement, a declaration or a comment."""
        self._lines.append(_Line(self._depth, text))

    def value(self, head: str, expression: str, name: str) -> str:
        """Append a value's definition, which has no effect; gives its name."""
        self._lines.append(_Line(self._depth, expression, name, head.format(name)))
        return name

    @contextlib.contextmanager
    def block(self, head: str) -> Iterator[None]:
        """A block in braces."""
        self._lines.append(_Line(self._depth, head, is_block=True))
        self._depth += 1
        yield
        self._depth -= 1
        self._lines.append(_Line(self._depth, "}", is_block=True))

    def text(self) -> str:
        """All lines, without values that nobody uses."""
        kept: list[_Line] = []
        uses: Counter[str] = Counter()
        for line in reversed(self._lines):
            if line.name and not uses[line.name]:
                continue
            uses.update(_VALUE.findall(line.text))
            kept.append(line)
        return "\n".join(line.full() for line in _merged(kept[::-1], uses))


def _merged(lines: list[_Line], uses: Counter[str]) -> list[_Line]:
    """Put values that are used once into the statement that follows them."""
    merged: list[_Line] = []
    for first in lines:
        line = first
        for value in reversed(_waiting(merged, first, uses)):
            is_tight = _TIGHT.fullmatch(value.text) or line.text.endswith(f" = {value.name};")
            text = value.text if is_tight else f"({value.text})"
            changed = re.sub(rf"\b{value.name}\b", text.replace("\\", r"\\"), line.text)
            longer = replace(line, text=changed)
            if changed != line.text and len(longer.full()) <= _COLUMNS:
                line = longer
                merged.remove(value)
        merged.append(line)
    return merged


def _waiting(merged: list[_Line], line: _Line, uses: Counter[str]) -> list[_Line]:
    """The values right before a line, of which it may be the one user."""
    found: list[_Line] = []
    if line.is_block:
        return found
    for value in reversed(merged[-6:]):
        if not value.name or value.depth != line.depth:
            break
        if uses[value.name] == 1:
            found.append(value)
    return found[::-1]


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


class CWriter(Writer):
    """A function's body as text, and what it needs at the top of its file."""

    LINES: ClassVar[str] = "lines of C"

    def __init__(self, name: str) -> None:
        super().__init__()
        self._name: Final = name
        self._lines: Final = CLines()
        self._repeats = 1
        self._count = 0
        self._inputs: Final[dict[str, str]] = {}
        self._tables: Final[list[str]] = []
        self._functions: Final[dict[str, str]] = {}
        self._has_status = False

    @property
    def length(self) -> int:
        return len(self._lines)

    def module(self, name: str) -> str:
        """The functions, tables and ``NAME_evaluate``."""
        body = self._lines.text()
        inputs = [text for each, text in self._inputs.items() if re.search(rf"\b{each}\b", body)]
        lines = [
            "",
            f"int32_t {name}_evaluate(const void *const *inputs, void *const *outputs) {{",
            *inputs,
            *(["  int32_t status = 0;"] if self._has_status else []),
            *([] if inputs else ["  (void)inputs;"]),
            body,
            f"  return {'status' if self._has_status else '0'};",
            "}",
            "",
        ]
        fused = [FUSED] if "FMA(" in "".join([body, *self._functions.values()]) else []
        return "\n".join([*fused, *self._functions.values(), *self._tables, *lines])

    # Values

    def literal(self, kind: str, value: float) -> str:
        return literal(kind, value)

    def binary(self, operation: str, kind: str, left: str, right: str) -> str:
        form = _OPERATORS[operation]
        if kind in FLOATS:
            return self._value(kind, f"{_atom(left)} {form} {_atom(right)}")
        if operation in _WRAPPING:
            wide = "uint64_t" if kind.endswith("64") else "uint32_t"
            right = right if operation == "shl" else f"({wide}){_atom(right)}"
            return self._value(kind, f"({TYPES[kind]})(({wide}){_atom(left)} {form} {right})")
        return self._value(kind, f"({TYPES[kind]})({_atom(left)} {form} {_atom(right)})")

    def multiply_add(self, left: str, right: str, addend: str) -> str:
        return self._value("float32", f"FMA({left}, {right}, {addend})", MULTIPLY_ADD_COST)

    def compare(self, relation: str, kind: str, left: str, right: str) -> str:
        del kind
        return self._value("test", f"{_atom(left)} {_OPERATORS[relation]} {_atom(right)}")

    def select(self, test: str, kind: str, chosen: str, other: str) -> str:
        return self._value(kind, f"{_atom(test)} ? {_atom(chosen)} : {_atom(other)}")

    def convert(self, kind: str, target: str, value: str) -> str:
        if kind == target:
            return value
        if target in {"test", "bool"}:
            return self._value(target, f"{_atom(value)} != 0" if kind != "test" else value)
        if kind in FLOATS and target not in FLOATS:
            function = f"{kind}_to_{target}"
            if function not in self._functions:
                self._functions[function] = conversion(kind, target).format(name=self._name)
            return self._value(target, f"{self._name}_{function}({value})")
        return self._value(target, f"({TYPES[target]}){_atom(value)}")

    def reinterpret(self, kind: str, target: str, value: str) -> str:
        return self._value(target, self._own("bits" if kind == "float32" else "real", value))

    def call(self, function: str, kind: str, value: str) -> str:
        if kind not in FLOATS:
            wide = "uint64_t" if kind == "int64" else "uint32_t"
            negated = f"({TYPES[kind]})(0u - ({wide}){_atom(value)})"
            chosen = f"{_atom(value)} < 0 ? {negated} : {_atom(value)}"
            return self._value(kind, negated if function == "neg" else chosen)
        if function == "neg":
            return self._value(kind, f"-{_atom(value)}")
        if function == "sqrt":
            return self._value(kind, f"sqrtf({value})")
        return self._value(kind, self._own(function, value), OWN_FUNCTION_COST)

    def copy_sign(self, value: str, sign: str) -> str:
        return self._value("float32", self._own("copysign", value, sign))

    def _own(self, function: str, *values: str) -> str:
        self._define(function)
        return f"{self._name}_{function}({', '.join(values)})"

    def _define(self, function: str) -> None:
        if function in self._functions:
            return
        if function in HELPERS:
            text = HELPERS[function]
            for needed in HELPERS:
                if f"{{name}}_{needed}(" in text and needed != function:
                    self._define(needed)
            self._functions[function] = text.format(name=self._name)
            return
        body = CWriter(self._name)
        result = FUNCTIONS[function](body, "x")
        body._lines.add(f"return {result};")
        self._functions.update(body._functions)
        head = f"static inline float {self._name}_{function}(float x) {{"
        self._functions[function] = f"{head}\n{body._lines.text()}\n}}\n"

    # Memory

    def variable(self, kind: str) -> str:
        name = self._fresh("m")
        self._lines.add(f"{TYPES[kind]} {name};")
        return name

    def get(self, kind: str, variable: str) -> str:
        return self._value(kind, variable)

    def put(self, kind: str, value: str, variable: str) -> None:
        del kind
        self._statement(f"{variable} = {value};")

    def load(self, kind: str, pointer: str, offset: str = "0") -> str:
        return self._value(kind, self._element(pointer, offset))

    def store(self, kind: str, value: str, pointer: str, offset: str = "0") -> None:
        del kind
        self._statement(f"{self._element(pointer, offset)} = {value};")

    def address(self, kind: str, pointer: str, offset: str) -> str:
        del kind
        return pointer if offset == "0" else f"{pointer} + {offset}"

    def _element(self, pointer: str, offset: str) -> str:
        base, _, start = pointer.partition(" + ")
        return f"{base}[{self.plus(start or '0', offset)}]"

    def constant(self, kind: str, data: bytes, about: str) -> str:
        name = f"c_{len(self._tables)}"
        self._tables.append(table(name, kind, data, about))
        return name

    def scratch(self, kind: str, size_bytes: int) -> str:
        name = self._fresh("t")
        count = size_bytes // DTYPES[kind].itemsize
        self._lines.add(f"_Alignas({ALIGNMENT}) {TYPES[kind]} {name}[{count}];")
        return name

    def input(self, number: int, kind: str, name: str) -> str:
        self._inputs[name] = f"  const {TYPES[kind]} *const {name} = inputs[{number}];"
        return name

    def output(self, number: int, kind: str, pointer: str, count: int) -> None:
        name = self._fresh("o")
        self._lines.add(f"{TYPES[kind]} *const {name} = outputs[{number}];")
        with self.loop(count) as index:
            self._statement(f"{name}[{index}] = {pointer}[{index}];")

    # Control

    @contextlib.contextmanager
    def loop(self, count: int) -> Iterator[str]:
        if count == 1:
            yield "0"
            return
        index = self._fresh("i")
        self._repeats *= count
        with self._lines.block(f"for (int64_t {index} = 0; {index} < {count}; ++{index}) {{"):
            yield index
        self._repeats //= count

    def require(self, test: str, code: int) -> None:
        self._has_status = True
        self._statement(f"status = status == 0 && !{_atom(test)} ? {code} : status;")

    def note(self, text: str) -> None:
        self._lines.add("")
        self._lines.add(comment(text))

    # Sums of products

    def block(
        self, source: str, target: tuple[str, int], rows: WeightRows, biases: str | None
    ) -> None:
        # What only copies would be memcpy's, and its memory no registers: the ends are apart.
        known, last = f"{biases}[lane]" if biases else "0.0f", str(rows.inputs - 1)
        if rows.inputs > 1:
            sums = self._fresh("s")
            self._lines.add(f"float {sums}[{rows.width}];")
            self._add_products(source, f"{sums}[lane]", rows, ("0", known))
            known = f"{sums}[lane]"
        if rows.inputs > 2:
            with self.loop(rows.inputs - 2) as index:
                self._add_products(source, known, rows, (self.plus(index, "1"), known))
        place = self._element(target[0], self.plus(str(target[1]), "lane"))
        self._add_products(source, place, rows, (last, known))

    def _add_products(
        self, source: str, place: str, rows: WeightRows, term: tuple[str, str]
    ) -> None:
        index, known = term
        value = self._fresh("x")
        self._lines.add(f"const float {value} = {self._element(source, index)};")
        weight = self._element(rows.pointer, self.plus(self.scaled(index, rows.step), "lane"))
        self._each(rows.width, f"{place} = FMA({value}, {weight}, {known});")

    def sum(self, places: Sequence[str], count: int, first: str) -> str:
        whole, rest = divmod(count, LANES)
        total = self._fresh("m")
        self._lines.add(f"float {total} = {first};")
        if whole:
            self._sum_lanes(places, total, whole)
        if rest:
            with self.loop(rest) as index:
                offset = self.plus(str(whole * LANES), index)
                terms = [self._element(place, offset) for place in places]
                self._statement(f"{total} = {_added(total, terms)};", _TERM_COST)
        return self._value("float32", total)

    def _sum_lanes(self, places: Sequence[str], total: str, whole: int) -> None:
        sums = self._fresh("s")
        self._lines.add(f"float {sums}[{LANES}] = {{0.0f}};")
        with self.loop(whole) as index:
            offset = self.plus(self.scaled(index, LANES), "lane")
            terms = [self._element(place, offset) for place in places]
            self._each(LANES, f"{sums}[lane] = {_added(f'{sums}[lane]', terms)};")
        lanes = LANES // 2
        while lanes > 1:
            self._each(lanes, f"{sums}[lane] += {sums}[lane + {lanes}];")
            lanes //= 2
        self._lines.add(f"{total} += {sums}[0] + {sums}[1];")

    def _each(self, count: int, statement: str) -> None:
        """A loop that becomes vectors."""
        self._lines.add(f"for (int64_t lane = 0; lane < {count}; ++lane)")
        self._repeats *= count
        self._statement(f"  {statement}", _TERM_COST)
        self._repeats //= count

    def _scaled(self, index: str, stride: int) -> str:
        return f"{_atom(index)} * {stride}"

    def _plus(self, left: str, right: str) -> str:
        return f"{left} + {right}"

    def _statement(self, text: str, cost: int = 1) -> None:
        self.evaluated += cost * self._repeats
        self._lines.add(text)

    def _value(self, kind: str, expression: str, cost: int = 1) -> str:
        if _PLAIN.fullmatch(expression) and not expression.startswith("m_"):
            return expression
        self.evaluated += cost * self._repeats
        return self._lines.value(f"const {TYPES[kind]} {{}} = ", expression, self._fresh("v"))

    def _fresh(self, prefix: str) -> str:
        self._count += 1
        return f"{prefix}_{self._count}"


def _added(total: str, terms: Sequence[str]) -> str:
    if len(terms) == 1:
        return f"{total} + {terms[0]}"
    return f"FMA({', '.join(terms)}, {total})"


def _atom(expression: str) -> str:
    return expression if _PLAIN.fullmatch(expression) else f"({expression})"

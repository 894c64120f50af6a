"""Writes C11: one function with loops over arrays, and the tables and functions that it needs."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Sequence
from typing import ClassVar, Final

from mlgo_gym.model._c_lines import CLines
from mlgo_gym.model._c_text import FUSED, HELPERS, TYPES, comment, conversion, literal, table
from mlgo_gym.model._functions import FUNCTIONS
from mlgo_gym.model._graph import DTYPES
from mlgo_gym.model._writer import (
    ALIGNMENT,
    FLOATS,
    LANES,
    MULTIPLY_ADD_COST,
    OWN_FUNCTION_COST,
    WeightRows,
    Writer,
)

_OPERATORS: Final = {
    "add": "+", "sub": "-", "mul": "*", "div": "/", "and": "&", "or": "|", "xor": "^",
    "shl": "<<", "ashr": ">>", "lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==",
    "ne": "!=",
}  # fmt: skip
_WRAPPING: Final = frozenset({"add", "sub", "mul", "shl"})
_TERM_COST: Final = MULTIPLY_ADD_COST + 1
_PLAIN: Final = re.compile(r"-?[\w.]+")


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

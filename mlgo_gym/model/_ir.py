"""Writes LLVM IR: registers, loops, loads and stores, and sums of products in vectors.

In memory, and wherever IR has no type of that kind, a ``bool`` is an ``i8`` of 0 or 1; a ``test``
is an ``i1``. Vectors are of 16 floats; LLVM splits them to what the CPU has.

The origins of instructions are debug locations: each operator is a function of its own to DWARF,
inlined into the model's, and so is what is fused into it. Profilers and debuggers name them so, and
the code is the same without.
"""

from __future__ import annotations

import contextlib
import struct
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final

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

_FIRST: Final = 5
"""The number of the first metadata of an origin; `Origins.metadata` has those before."""

_MOST_CHARACTERS: Final = 200
_UNIT: Final = "language: DW_LANG_C, file: !1, isOptimized: true, emissionKind: FullDebug"
_FUNCTION: Final = "file: !1, type: !2, spFlags: DISPFlagDefinition | DISPFlagOptimized"
_ESCAPE: Final = "\\"
_POINTERS: Final = "ptr readonly captures(none)"

_TYPES: Final = {
    "float32": "float",
    "float64": "double",
    "bool": "i8",
    "test": "i1",
    **{f"{sign}int{bits}": f"i{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)},
}
_SUFFIXES: Final = {"float32": "f32", "float64": "f64"}
_ORDERED: Final = {"lt": "olt", "le": "ole", "gt": "ogt", "ge": "oge", "eq": "oeq", "ne": "une"}


@dataclass(frozen=True, slots=True)
class Origin:
    """An operator, or what is fused into one.

    Attributes:
        ids: its number, from 1, and before it, of something fused, that of its own.
        name: what it is called.
    """

    ids: tuple[int, ...]
    name: str


class Origins:
    """Knows what is being written comes of, and marks instructions with it.

    Attributes:
        found: all there are, in the order of their ids.
        evaluated: how many instructions of each one evaluation runs through, before they are
            optimised.
    """

    def __init__(self) -> None:
        self.found: Final[list[Origin]] = []
        self.evaluated: Final = Counter[Origin]()
        self._open: list[int] = []

    @contextlib.contextmanager
    def within(self, name: str) -> Iterator[None]:
        """Give everything marked inside this origin."""
        outer = self.found[self._open[-1]].ids if self._open else ()
        known = [(each.name, each.ids[1:]) for each in self.found]
        is_known = bool(outer) and (name, outer) in known
        index = known.index((name, outer)) if is_known else len(known)
        if not is_known:
            self.found.append(Origin((index + 1, *outer), name))
        self._open.append(index)
        yield
        self._open.pop()

    def mark(self, evaluated: int) -> str:
        """The mark behind an instruction that is evaluated so often."""
        if not self._open:
            return f", !dbg !{_FIRST}"
        origin = self.found[self._open[-1]]
        self.evaluated[origin] += evaluated
        return f", !dbg !{_numbers(origin)[2]}"

    def metadata(self, function: str) -> list[str]:
        """The lines at the module's end, and how its function is marked: ``!dbg !4``."""
        unit, flags = f"!{self._end}", f"!{self._end + 1}"
        what = f"unit: {unit}, {_FUNCTION}"
        lines = [
            f'!1 = !DIFile(filename: "{_text(function)}", directory: "")',
            "!2 = !DISubroutineType(types: !0)",
            f"!llvm.dbg.cu = !{{{unit}}}",
            f"!llvm.module.flags = !{{{flags}}}",
            f'{flags} = !{{i32 2, !"Debug Info Version", i32 3}}',
            f"{unit} = distinct !DICompileUnit({_UNIT})",
            f'!4 = distinct !DISubprogram(name: "{_text(function)}", {what})',
            f"!{_FIRST} = !DILocation(line: 0, scope: !4)",
        ]
        for each in self.found:
            scope, call, location = _numbers(each)
            line, caller = f"line: {each.ids[0]}", "scope: !4"
            if len(each.ids) > 1:
                outer = _numbers(self.found[each.ids[1] - 1])
                caller = f"scope: !{outer[0]}, inlinedAt: !{outer[1]}"
            lines += [
                f'!{scope} = distinct !DISubprogram(name: "{_text(each.name)}", {what})',
                f"!{call} = distinct !DILocation({line}, {caller})",
                f"!{location} = !DILocation({line}, scope: !{scope}, inlinedAt: !{call})",
            ]
        return lines

    @property
    def _end(self) -> int:
        return _FIRST + 1 + 3 * len(self.found)


def _numbers(origin: Origin) -> tuple[int, int, int]:
    """The metadata numbers of its function, of its inlined place, and of the marked location."""
    first = _FIRST + 1 + 3 * (origin.ids[0] - 1)
    return first, first + 1, first + 2


def _text(name: str) -> str:
    """A name as LLVM's assembly writes it."""
    return "".join(
        chr(byte) if 32 <= byte < 127 and byte not in b'"\\' else f"\\{byte:02x}"
        for byte in name[:_MOST_CHARACTERS].encode("utf-8", "backslashreplace")
    )


def _vector(lanes: int) -> str:
    return f"<{lanes} x float>"


def _pieces(width: int) -> list[tuple[int, int]]:
    """Vectors that cover a width: (first element, lanes), 16 lanes as long as they fit.

    >>> _pieces(37)
    [(0, 16), (16, 16), (32, 4), (36, 1)]
    """
    pieces, start, lanes = [], 0, LANES
    while start < width:
        while lanes > width - start:
            lanes //= 2
        pieces.append((start, lanes))
        start += lanes
    return pieces


def float_literal(kind: str, value: float) -> str:
    """A constant as LLVM writes it: the bits of the double that equals it.

    >>> float_literal("float32", 0.5)
    '0x3fe0000000000000'
    """
    if kind == "float32":
        (value,) = struct.unpack("<f", struct.pack("<f", value))
    return "0x" + struct.pack(">d", value).hex()


def constant_bytes(name: str, data: bytes) -> str:
    r"""A private constant that holds these bytes; text of bytes is what LLVM parses fastest.

    >>> print(constant_bytes("@c0", bytes([1, 171])))
    @c0 = internal unnamed_addr constant [2 x i8] c"\01\ab", align 64
    """
    text = f"\\{data.hex(_ESCAPE)}" if data else ""
    return (
        f'{name} = internal unnamed_addr constant [{len(data)} x i8] c"{text}", align {ALIGNMENT}'
    )


class IrWriter(Writer):
    """A function's body as text, and the constants and functions that it needs."""

    LINES: ClassVar[str] = "lines of LLVM IR"

    def __init__(self, origins: Origins | None = None) -> None:
        super().__init__()
        self._origins = origins
        self._repeats = 1
        self._entry: list[str] = []
        self._lines: list[str] = []
        self._constants: list[str] = []
        self._functions: dict[str, str] = {}
        self._count = 0
        self._block = "start"
        self._status = ""

    def module(self, name: str) -> str:
        """The text of a module with the function ``NAME_evaluate``."""
        if self._status:
            self._emit(f"ret i32 {self.get('int32', self._status)}")
        else:
            self._emit("ret i32 0")
        parameters = f"{_POINTERS} %inputs, {_POINTERS} %outputs"
        return "\n".join(
            [
                *self._constants,
                *(text for _, text in sorted(self._functions.items())),
                f"define i32 @{name}_evaluate({parameters}) nounwind {self._mark()}{{",
                self._text(),
                "}",
                "!0 = !{}",
                *(self._origins.metadata(f"{name}_evaluate") if self._origins else ()),
                "",
            ]
        )

    def _mark(self) -> str:
        return "!dbg !4 " if self._origins else ""

    def within(self, name: str) -> contextlib.AbstractContextManager[None]:
        return self._origins.within(name) if self._origins else super().within(name)

    def _text(self) -> str:
        return "\n".join(["entry:", *self._entry, "  br label %start", "start:", *self._lines])

    @property
    def length(self) -> int:
        return len(self._entry) + len(self._lines)

    def literal(self, kind: str, value: float) -> str:
        return float_literal(kind, value) if kind in FLOATS else str(int(value))

    def binary(self, operation: str, kind: str, left: str, right: str) -> str:
        if kind in FLOATS:
            operation = f"f{operation}"
        elif operation == "div":
            operation = "udiv" if kind.startswith("u") else "sdiv"
        return self._value(f"{operation} {_TYPES[kind]} {left}, {right}")

    def multiply_add(self, left: str, right: str, addend: str) -> str:
        operands = f"float {left}, float {right}, float {addend}"
        return self._value(f"call float @llvm.fmuladd.f32({operands})", MULTIPLY_ADD_COST)

    def compare(self, relation: str, kind: str, left: str, right: str) -> str:
        if kind in FLOATS:
            form = f"fcmp {_ORDERED[relation]}"
        elif relation in {"eq", "ne"}:
            form = f"icmp {relation}"
        else:
            form = f"icmp {'u' if kind.startswith(('u', 'bool')) else 's'}{relation}"
        return self._value(f"{form} {_TYPES[kind]} {left}, {right}")

    def select(self, test: str, kind: str, chosen: str, other: str) -> str:
        return self._value(f"select i1 {test}, {_TYPES[kind]} {chosen}, {_TYPES[kind]} {other}")

    def convert(self, kind: str, target: str, value: str) -> str:
        if kind == target:
            return value
        if target == "test":
            return self.compare("ne", kind, value, self.literal(kind, 0))
        if target == "bool":
            value = value if kind == "test" else self.convert(kind, "test", value)
            return self._value(f"zext i1 {value} to i8")
        if kind in FLOATS:
            return self._convert_float(kind, target, value)
        is_unsigned = kind.startswith(("u", "bool", "test"))
        if target in FLOATS:
            form = "uitofp" if is_unsigned else "sitofp"
            return self._value(f"{form} {_TYPES[kind]} {value} to {_TYPES[target]}")
        return self._resize(_TYPES[kind], _TYPES[target], value, is_unsigned=is_unsigned)

    def _convert_float(self, kind: str, target: str, value: str) -> str:
        if target in FLOATS:
            form = "fpext" if target == "float64" else "fptrunc"
            return self._value(f"{form} {_TYPES[kind]} {value} to {_TYPES[target]}")
        form = "fptoui" if target.startswith("u") else "fptosi"
        function = f"@llvm.{form}.sat.{_TYPES[target]}.{_SUFFIXES[kind]}"
        return self._value(f"call {_TYPES[target]} {function}({_TYPES[kind]} {value})")

    def _resize(self, kind: str, target: str, value: str, *, is_unsigned: bool) -> str:
        width, wanted = int(kind[1:]), int(target[1:])
        if width == wanted:
            return value
        form = "trunc" if wanted < width else "zext" if is_unsigned else "sext"
        return self._value(f"{form} {kind} {value} to {target}")

    def reinterpret(self, kind: str, target: str, value: str) -> str:
        return self._value(f"bitcast {_TYPES[kind]} {value} to {_TYPES[target]}")

    def call(self, function: str, kind: str, value: str) -> str:
        kind = _TYPES[kind]
        if function in FUNCTIONS:
            self._define(function)
            return self._value(f"call float @mlgo.{function}(float {value})", OWN_FUNCTION_COST)
        if function == "neg":
            is_float = kind in {"float", "double"}
            return self._value(f"fneg {kind} {value}" if is_float else f"sub {kind} 0, {value}")
        if function == "abs":
            if kind not in {"float", "double"}:
                return self._value(f"call {kind} @llvm.abs.{kind}({kind} {value}, i1 false)")
            function = "fabs"
        suffix = "f64" if kind == "double" else "f32"
        return self._value(f"call {kind} @llvm.{function}.{suffix}({kind} {value})")

    def copy_sign(self, value: str, sign: str) -> str:
        return self._value(f"call float @llvm.copysign.f32(float {value}, float {sign})")

    def _define(self, function: str) -> None:
        if function in self._functions:
            return
        body = IrWriter()
        body._emit(f"ret float {FUNCTIONS[function](body, '%x')}")
        self._functions |= body._functions
        self._functions[function] = (
            f"define internal float @mlgo.{function}(float %x) alwaysinline nounwind {{\n"
            f"{body._text()}\n}}"
        )

    def variable(self, kind: str) -> str:
        return self._allocate(_TYPES[kind])

    def get(self, kind: str, variable: str) -> str:
        return self._load(_TYPES[kind], variable)

    def put(self, kind: str, value: str, variable: str) -> None:
        self._store(_TYPES[kind], value, variable)

    def load(self, kind: str, pointer: str, offset: str = "0") -> str:
        return self._load(_TYPES[kind], self.address(kind, pointer, offset))

    def store(self, kind: str, value: str, pointer: str, offset: str = "0") -> None:
        self._store(_TYPES[kind], value, self.address(kind, pointer, offset))

    def address(self, kind: str, pointer: str, offset: str) -> str:
        if offset == "0":
            return pointer
        return self._value(f"getelementptr inbounds {_TYPES[kind]}, ptr {pointer}, i64 {offset}")

    def constant(self, kind: str, data: bytes, about: str) -> str:  # noqa: ARG002 - bytes are bytes
        name = f"@c{len(self._constants)}"
        self._constants.append(constant_bytes(name, data))
        return name

    def scratch(self, kind: str, size_bytes: int) -> str:  # noqa: ARG002 - bytes are bytes
        return self._allocate(f"[{size_bytes} x i8]", ALIGNMENT)

    def input(self, number: int, kind: str, name: str) -> str:  # noqa: ARG002 - IR has no names
        address = self._pointer("%inputs", number)
        return self._value(f"load ptr, ptr {address}, !invariant.load !0")

    def output(self, number: int, kind: str, pointer: str, count: int) -> None:
        target = self._value(f"load ptr, ptr {self._pointer('%outputs', number)}")
        # No loop: of many, LLVM would ask of each two whether they overlap.
        size_bytes = count * DTYPES[kind].itemsize
        self._emit(
            f"call void @llvm.memcpy.p0.p0.i64(ptr {target}, ptr {pointer}, "
            f"i64 {size_bytes}, i1 false)"
        )

    def _pointer(self, pointers: str, number: int) -> str:
        if not number:
            return pointers
        return self._value(f"getelementptr inbounds ptr, ptr {pointers}, i64 {number}")

    @contextlib.contextmanager
    def loop(self, count: int) -> Iterator[str]:
        if count == 1:
            yield "0"
            return
        name, before = self._fresh("l")[1:], self._block
        index = f"%{name}.i"
        self._emit(f"br label %{name}.body")
        self._start(f"{name}.body")
        self._repeats *= count
        self._emit(f"{index} = phi i64 [ 0, %{before} ], [ {index}.next, %{name}.latch ]")
        yield index
        self._emit(f"br label %{name}.latch")
        self._start(f"{name}.latch")
        self._emit(f"{index}.next = add nuw nsw i64 {index}, 1")
        done = self._value(f"icmp eq i64 {index}.next, {count}")
        self._emit(f"br i1 {done}, label %{name}.exit, label %{name}.body")
        self._repeats //= count
        self._start(f"{name}.exit")

    def require(self, test: str, code: int) -> None:
        if not self._status:
            self._status = self.variable("int32")
            self._entry.append(f"  store i32 0, ptr {self._status}")
        status = self.get("int32", self._status)
        is_first = self.compare("eq", "int32", status, "0")
        failed = self.select(is_first, "int32", str(code), status)
        self.put("int32", self.select(test, "int32", status, failed), self._status)

    def note(self, text: str) -> None:
        """Nobody reads this."""

    def block(
        self, source: str, target: tuple[str, int], rows: WeightRows, biases: str | None
    ) -> None:
        pieces = [(start, _vector(lanes)) for start, lanes in _pieces(rows.width)]
        sums = [self._allocate(kind) for _, kind in pieces]
        for (start, kind), total in zip(pieces, sums, strict=True):
            first = self._read(kind, biases, str(start)) if biases else "zeroinitializer"
            self._store(kind, first, total)
        with self.loop(rows.inputs) as index:
            value = self.load("float32", source, index)
            row = self.scaled(index, rows.step)
            for (start, kind), total in zip(pieces, sums, strict=True):
                weights = self._read(kind, rows.pointer, self.plus(row, str(start)))
                self._accumulate(kind, total, [self._splat(value, kind), weights])
        for (start, kind), total in zip(pieces, sums, strict=True):
            place = self.address("float32", target[0], str(target[1] + start))
            self._store(kind, self._load(kind, total), place, 4)

    def sum(self, places: Sequence[str], count: int, first: str) -> str:
        whole, rest = divmod(count, LANES)
        total = first
        if whole:
            kind = _vector(LANES)
            sums = self._allocate(kind)
            self._store(kind, "zeroinitializer", sums)
            with self.loop(whole) as index:
                offset = self.scaled(index, LANES)
                terms = [self._read(kind, place, offset) for place in places]
                self._accumulate(kind, sums, terms)
            total = self.binary("add", "float32", total, self._halved(self._load(kind, sums)))
        for position in range(count - rest, count):
            terms = [self.load("float32", place, str(position)) for place in places]
            if len(terms) == 2:
                total = self.multiply_add(terms[0], terms[1], total)
            else:
                total = self.binary("add", "float32", total, terms[0])
        return total

    def _halved(self, values: str) -> str:
        """The halves are added until one element is left, in this order on any CPU."""
        lanes = LANES
        while lanes > 1:
            kind, lanes = _vector(lanes), lanes // 2
            halves = []
            for start in (0, lanes):
                chosen = ", ".join(f"i32 {lane}" for lane in range(start, start + lanes))
                shuffled = f"shufflevector {kind} {values}, {kind} poison, <{lanes} x i32> "
                halves.append(self._value(f"{shuffled}<{chosen}>"))
            values = self._value(f"fadd {_vector(lanes)} {halves[0]}, {halves[1]}")
        return self._value(f"extractelement {_vector(1)} {values}, i64 0")

    def _read(self, kind: str, pointer: str, offset: str) -> str:
        return self._load(kind, self.address("float32", pointer, offset), 4)

    def _splat(self, value: str, kind: str) -> str:
        first = self._value(f"insertelement {kind} poison, float {value}, i64 0")
        zeros = f"{kind.replace('float', 'i32')} zeroinitializer"
        return self._value(f"shufflevector {kind} {first}, {kind} poison, {zeros}")

    def _accumulate(self, kind: str, total: str, terms: Sequence[str]) -> None:
        known = self._load(kind, total)
        if len(terms) == 2:
            operands = ", ".join(f"{kind} {each}" for each in (*terms, known))
            function = f"@llvm.fmuladd.v{kind[1 : kind.index(' ')]}f32"
            value = self._value(f"call {kind} {function}({operands})", MULTIPLY_ADD_COST)
        else:
            value = self._value(f"fadd {kind} {known}, {terms[0]}")
        self._store(kind, value, total)

    def _load(self, kind: str, pointer: str, alignment: int | None = None) -> str:
        suffix = f", align {alignment}" if alignment else ""
        return self._value(f"load {kind}, ptr {pointer}{suffix}")

    def _store(self, kind: str, value: str, pointer: str, alignment: int | None = None) -> None:
        suffix = f", align {alignment}" if alignment else ""
        self._emit(f"store {kind} {value}, ptr {pointer}{suffix}")

    def _scaled(self, index: str, stride: int) -> str:
        return self._value(f"mul nsw i64 {index}, {stride}")

    def _plus(self, left: str, right: str) -> str:
        return self._value(f"add nsw i64 {left}, {right}")

    def _emit(self, instruction: str, cost: int = 1) -> None:
        self.evaluated += cost * self._repeats
        mark = self._origins.mark(cost * self._repeats) if self._origins else ""
        self._lines.append(f"  {instruction}{mark}")

    def _value(self, instruction: str, cost: int = 1) -> str:
        register = self._fresh("v")
        self._emit(f"{register} = {instruction}", cost)
        return register

    def _allocate(self, kind: str, alignment: int | None = None) -> str:
        register = self._fresh("m")
        suffix = f", align {alignment}" if alignment else ""
        self._entry.append(f"  {register} = alloca {kind}{suffix}")
        return register

    def _fresh(self, prefix: str) -> str:
        self._count += 1
        return f"%{prefix}{self._count}"

    def _start(self, block: str) -> None:
        self._lines.append(f"{block}:")
        self._block = block

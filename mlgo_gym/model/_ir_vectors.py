"""Sums as LLVM IR, in vectors of 16 floats; LLVM splits them to what the CPU has."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

from mlgo_gym.model._writer import LANES, MULTIPLY_ADD_COST, WeightRows, Writer


class VectorWriter(Writer):
    """The part of the writing of IR that is about vectors."""

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

    @abstractmethod
    def _emit(self, instruction: str, cost: int = 1) -> None:
        """Append an instruction that has no result."""

    @abstractmethod
    def _value(self, instruction: str, cost: int = 1) -> str:
        """Append an instruction and name its result."""

    @abstractmethod
    def _allocate(self, kind: str, alignment: int | None = None) -> str:
        """Reserve memory on the stack for the whole call."""


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

"""Whether the counts in a module add up: what comes into a block leaves it, and who calls enters.

A module that has just been given counts says how often functions are entered, and how often each
way out of a block is taken (``branch_weights``). So what comes into a block is known, and must be
what leaves it. Counters that threads share lose increments, each its own, and then it is not. So
is it, by a little, where a program ends or jumps in the middle of its functions.

LLVM writes weights with 32 bits and divides those of a block that do not fit
(``llvm/lib/Transforms/Instrumentation/PGOInstrumentation.cpp``); such a block is taken to let out
what comes in.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Self

from mlgo_gym.llvm.text._module_text import NAME_PATTERN, Function, ModuleText, references
from mlgo_gym.llvm.text._profile import entry_count

_LABEL: Final = re.compile(rf"^({NAME_PATTERN}):")
_TARGET: Final = re.compile(rf"label %({NAME_PATTERN})")
_PROF: Final = re.compile(r"!prof !(\d+)")
_WEIGHTS: Final = re.compile(r'!"branch_weights"(?:, !"expected")?((?:, i32 -?\d+)+)')
_NUMBER: Final = re.compile(r"i32 (-?\d+)")
_CALL: Final = re.compile(rf"^  (?:%\S+ = )?(?:\w+ )?(?:call|invoke) .*?@({NAME_PATTERN})\(")
_LEAST_SCALED: Final = 1 << 31
_BITS: Final = 1 << 32


@dataclass(frozen=True, slots=True)
class FunctionCounts:
    """The counts of a function, and how well they add up.

    Attributes:
        entry: how often it is entered.
        weights: how often each way out is taken, of its blocks that have several.
        flow: the sum of its blocks' counts.
        lost: the sum of what comes into its blocks and does not leave them, or the reverse.
        instructions: how many instructions of LLVM IR it executes.
    """

    entry: int
    weights: tuple[tuple[int, ...], ...]
    flow: int
    lost: int
    instructions: int


@dataclass(frozen=True, slots=True)
class ModuleCounts:
    """The counts of a module.

    Attributes:
        functions: those that have counts, by name as it is written in assembly.
        calls: how often blocks run that call a function directly, over all of them.
        own: functions that no other module sees.
        known_callers: those of them that are called directly alone.
    """

    functions: Mapping[str, FunctionCounts]
    calls: Mapping[str, int]
    own: tuple[str, ...]
    known_callers: tuple[str, ...]

    @classmethod
    def of_json(cls, values: Mapping[str, Any]) -> Self:
        """As it comes out of JSON."""
        functions = {
            name: FunctionCounts(**each | {"weights": tuple(map(tuple, each["weights"]))})
            for name, each in values["functions"].items()
        }
        names = (tuple(values[key]) for key in ("own", "known_callers"))
        return cls(functions, values["calls"], *names)


def counts_of(module: ModuleText) -> ModuleCounts:
    """The counts of a module that has been given a profile and not been optimised."""
    functions: dict[str, FunctionCounts] = {}
    calls: Counter[str] = Counter()
    taken = {name for line in module.variables.values() for name in references(line)}
    for name, function in module.functions.items():
        entry = entry_count(module, function.header)
        blocks = _blocks(function)
        flow = _Flow(module, blocks, entry or 0)
        executed = sum(block.instruction_count * flow.into(block.name) for block in blocks)
        for block in blocks:
            direct = [match[1] for match in map(_CALL.match, block.lines) if match]
            calls.update(dict.fromkeys(direct, 0))
            for each in direct if entry is not None else ():
                calls[each] += flow.into(block.name)
            named = Counter(each for line in block.lines for each in references(line))
            taken |= set(named - Counter(direct))
        if entry is not None:
            functions[name] = flow.counts(executed)
    own = {n for n, each in module.functions.items() if each.linkage in {"internal", "private"}}
    known = own & calls.keys() - taken
    return ModuleCounts(functions, dict(calls), tuple(sorted(own)), tuple(sorted(known)))


@dataclass(frozen=True, slots=True)
class _Block:
    name: str
    lines: Sequence[str]

    @property
    def instruction_count(self) -> int:
        return Function("", "", tuple(self.lines)).instruction_count

    @property
    def successors(self) -> list[str]:
        return _TARGET.findall("\n".join(self.lines))


def _blocks(function: Function) -> list[_Block]:
    return list(_split(function.body))


def _split(body: Sequence[str]) -> Iterator[_Block]:
    name, lines = "", list[str]()
    for line in body:
        if match := _LABEL.match(line):
            if lines:
                yield _Block(name, lines)
            name, lines = match[1], []
        elif line.strip():
            lines.append(line)
    if lines:
        yield _Block(name, lines)


class _Flow:
    """The counts that come into each block of a function."""

    def __init__(self, module: ModuleText, blocks: Sequence[_Block], entry: int) -> None:
        self._entry = entry
        self._weights: dict[str, list[int]] = {}
        self._scaled: set[str] = set()
        self._edges: dict[str, list[tuple[str, int]]] = defaultdict(list)
        self._into: dict[str, int] = {blocks[0].name: entry} if blocks else {}
        for block in blocks:
            targets = block.successors
            if len(targets) > 1:
                weights = _weights(module, block.lines[-1], len(targets))
                self._weights[block.name] = weights
            for place, target in enumerate(targets):
                self._edges[target].append((block.name, place))

    def into(self, block: str) -> int:
        """How often a block is entered."""
        if block in self._into:
            return self._into[block]
        pending = [block]
        while pending:
            name = pending[-1]
            unknown = [
                source
                for source, _ in self._edges[name]
                if source not in self._into and not self._is_known(source) and source != name
            ]
            unknown = [each for each in unknown if each not in pending]
            if unknown:
                pending.append(unknown[0])
                continue
            self._into[name] = sum(
                self._along(source, place) for source, place in self._edges[name]
            )
            pending.pop()
        return self._into[block]

    def _is_known(self, block: str) -> bool:
        weights = self._weights.get(block)
        return weights is not None and max(weights) < _LEAST_SCALED

    def _along(self, source: str, place: int) -> int:
        weights = self._weights.get(source)
        if weights is None:
            return self._into.get(source, 0)
        if self._is_known(source):
            return weights[place]
        return round(self._into.get(source, 0) * weights[place] / sum(weights))

    def counts(self, instructions: int) -> FunctionCounts:
        """All of it."""
        flow = lost = 0
        for name in {*self._weights, *self._edges, *self._into}:
            into = self.into(name)
            flow += into
            if self._is_known(name):
                lost += abs(into - sum(self._weights[name]))
        ways = tuple(tuple(each) for each in self._weights.values() if any(each))
        return FunctionCounts(self._entry, ways, flow, lost, instructions)


def _weights(module: ModuleText, line: str, ways: int) -> list[int]:
    """The weights of a block's ways out; none of a block that never runs."""
    node = _PROF.search(line)
    match = _WEIGHTS.search(module.metadata[node[1]]) if node else None
    found = [int(each) % _BITS for each in _NUMBER.findall(match[1])] if match else []
    return found if len(found) == ways else [0] * ways

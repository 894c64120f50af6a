r"""Machine code right after register allocation, as LLVM writes it, and what is counted in it.

The text is LLVM's MIR (``-stop-after=virtregrewriter``), one YAML document for each function; only
their names, the blocks with the probabilities of their successors, and the instructions are
looked at::

    name:            f
    ...
    body:             |
      bb.0 (%ir-block.2):
        successors: %bb.1(0x40000000), %bb.2(0x40000000)

        renamable $rbx = COPY killed renamable $rsi
        MOV64mr %stack.0, 1, $noreg, 0, $noreg, $rax :: (store (s64) into %stack.0)

A name is plain, in single quotes, which are doubled inside, or in double quotes with YAML's escapes
(``yaml::escape``); of a name that is not UTF-8 only the start is left there. Block frequencies are
what ``-print-machine-bfi`` prints; see `block_frequencies`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from mlgo_gym.base import ModuleError
from mlgo_gym.llvm.text._instructions import ACCESSES, REMATERIALISABLE

KINDS: Final = (
    "copies",
    "loads",
    "stores",
    "loads_and_stores",
    "cheap_rematerialisations",
    "expensive_rematerialisations",
)
"""The parts of LLVM's score (``RegAllocScore``), in its order but for the sum's."""

_DOCUMENT: Final = re.compile(r"^---\nname: +(.*)$", re.MULTILINE)
_TRIPLE: Final = re.compile(r'^ *target triple = "([^"-]*)', re.MULTILINE)
_BLOCK: Final = re.compile(r"^  bb\.(\d+)\b", re.MULTILINE)
_SUCCESSOR: Final = re.compile(r"%bb\.(\d+)(?:\((0x[0-9a-f]+)\))?")
_OPCODE: Final = re.compile(r"    +(?:([^=(:]*?) = )?(?:[a-z][\w-]* )*([A-Z]\w*)(.*)")
_IMMUTABLE: Final = re.compile(r"\{ id: (\d+),[^}]*isImmutable: true")
_REGISTER: Final = re.compile(r"((?:[a-z][\w-]* )*)\$(\w+)")
_ACCESS: Final = re.compile(r'(?:^|, )\(((?:(?:[a-z-]+|"[^"]*") )*)')
_CONSTANT_MEMORY: Final = re.compile(r"from (?:constant-pool|got|jump-table)")
_FIXED_SLOT: Final = re.compile(r"from %fixed-stack\.(\d+)")
_SPILL_SLOT: Final = re.compile(r"\{ id: (\d+),[^}]*type: spill-slot")
_STACK_ACCESS: Final = re.compile(r"(load|store) \(s\d+\) (?:from|into) %stack\.(\d+)")
_CONSTANT_REGISTERS: Final = frozenset({"noreg"})
_PROGRAM_COUNTER: Final = "rip"
_CERTAIN: Final = 2.0**31
_FREQUENCY: Final = re.compile(
    r"^ - BB(\d+)(?:\[.*\])?: float = \S+, int = (\d+)(?:, count = (\d+))?", re.MULTILINE
)
_TABLE: Final = re.compile(r"^block-frequency-info: ", re.MULTILINE)
_ROW: Final = "\n - BB"
_IN_YAML: Final = re.compile(r"\\(x[0-9A-F]{2}|u[0-9A-F]{4}|U[0-9A-F]{8}|.)")
_YAML_ESCAPES: Final[Mapping[str, str]] = MappingProxyType(
    dict(zip("0abtnvfreN_LP", "\0\a\b\t\n\v\f\r\x1b\x85\xa0\u2028\u2029", strict=True))
)
_NOT_UTF_8: Final = "\N{REPLACEMENT CHARACTER}"


@dataclass(frozen=True, slots=True)
class MachineBlock:
    """A block, those after it with their probabilities, and how many instructions of each kind."""

    number: int
    successors: tuple[tuple[int, float], ...]
    counts: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class MachineFunction:
    """A function after register allocation."""

    name: str
    blocks: tuple[MachineBlock, ...]


def machine_functions(text: str, module: str) -> Iterator[MachineFunction]:
    """The functions in MIR; an unknown target or a name not in UTF-8 is a `ModuleError`."""
    starts = list(_DOCUMENT.finditer(text))
    ends = [*(match.start() for match in starts), len(text)][1:] if starts else []
    reader = _Reader(_architecture(text, module))
    for match, end in zip(starts, ends, strict=True):
        name = name_in_yaml(match[1])
        if _NOT_UTF_8 in name:
            raise ModuleError(
                module, f"register allocation: expected functions named in UTF-8, found {name!r}"
            )
        yield MachineFunction(name, tuple(reader.blocks(text[match.end() : end])))


def spill_code(text: str, name: str) -> MachineFunction:
    """A function, alone in its MIR, as far as it loads from spill slots and stores to them."""
    head, _, body = text.partition("\nbody: ")
    slots = frozenset(_SPILL_SLOT.findall(head))
    parts = _BLOCK.split(body)[1:]
    blocks = (
        MachineBlock(
            int(number),
            (),
            Counter(f"{kind}s" for kind, slot in _STACK_ACCESS.findall(lines) if slot in slots),
        )
        for number, lines in zip(parts[::2], parts[1::2], strict=True)
    )
    return MachineFunction(name, tuple(blocks))


def block_frequencies(text: str) -> dict[str, dict[int, float]]:
    """Each function's block frequencies, relative to the entry's, as LLVM has printed them last."""
    return {name: _relative(rows) for name, rows in _last_tables(text).items()}


def block_counts(text: str) -> dict[str, dict[int, float]]:
    """How often each block runs, of functions whose entries LLVM has counts of."""
    found = {}
    for name, rows in _last_tables(text).items():
        if count := rows[0][2]:
            found[name] = {each: int(count) * part for each, part in _relative(rows).items()}
    return found


def _last_tables(text: str) -> dict[str, list[tuple[str, str, str]]]:
    """Each function's rows as LLVM has printed them last: block, frequency and count."""
    tables = {}
    for table in _TABLE.split(text)[1:]:
        # A name is printed as it is, whatever is in it.
        name, row, rest = table.partition(_ROW)
        if row:
            tables[name] = _FREQUENCY.findall(row + rest)
    return tables


def name_in_yaml(written: str) -> str:
    r"""The name that a scalar stands for.

    >>> name_in_yaml("main"), name_in_yaml("'it''s'"), name_in_yaml(r'"\x01a\\b\N"')
    ('main', "it's", '\x01a\\b\x85')
    """
    if written.startswith("'"):
        return written[1:-1].replace("''", "'")
    if not written.startswith('"'):
        return written
    return _IN_YAML.sub(lambda match: _unescaped(match[1]), written[1:-1])


def _unescaped(escape: str) -> str:
    return chr(int(escape[1:], 16)) if len(escape) > 1 else _YAML_ESCAPES.get(escape, escape)


def _relative(rows: Sequence[tuple[str, str, str]]) -> dict[int, float]:
    entry = float(rows[0][1])
    return {int(block): float(frequency) / entry for block, frequency, _ in rows}


def _architecture(text: str, module: str) -> str:
    match = _TRIPLE.search(text)
    architecture = match[1] if match else ""
    if architecture not in REMATERIALISABLE:
        raise ModuleError(
            module,
            f"register allocation: expected a target out of {', '.join(REMATERIALISABLE)}, found "
            f"{architecture!r}",
        )
    return architecture


class _Reader:
    """Reads the blocks of functions for one architecture."""

    def __init__(self, architecture: str) -> None:
        self._rematerialisable = REMATERIALISABLE[architecture]
        self._accesses = ACCESSES.get(architecture, ())
        self._known: dict[str, str | None] = {}

    def blocks(self, text: str) -> Iterator[MachineBlock]:
        head, _, body = text.partition("\nbody: ")
        constant_slots = frozenset(_IMMUTABLE.findall(_section(head, "fixedStack")))
        number: int | None = None
        successors: tuple[tuple[int, float], ...] = ()
        counts: Counter[str] = Counter()
        for line in body.split("\n"):
            if line.startswith("    "):
                if line.startswith("    successors: "):
                    successors = _successors(line)
                elif kind := self._kind(line, constant_slots):
                    counts[kind] += 1
            elif match := _BLOCK.match(line):
                if number is not None:
                    yield MachineBlock(number, successors, counts)
                number, successors, counts = int(match[1]), (), Counter()
        if number is not None:
            yield MachineBlock(number, successors, counts)

    def _kind(self, line: str, constant_slots: frozenset[str]) -> str | None:
        """Return the kind of an instruction in LLVM's score (``calculateRegAllocScore``)."""
        match = _OPCODE.match(line)
        if match is None:
            return None
        opcode, operands = match[2], match[3]
        if opcode == "COPY":
            return "copies"
        is_cheap = self._rematerialisable.get(opcode)
        if is_cheap is not None and _can_be_repeated(operands, constant_slots):
            return "cheap_rematerialisations" if is_cheap else "expensive_rematerialisations"
        if opcode not in self._known:
            self._known[opcode] = next(
                (kind for pattern, kind in self._accesses if pattern.fullmatch(opcode)), None
            )
        return self._known[opcode] or _access(opcode, operands)


def _access(opcode: str, operands: str) -> str | None:
    """Return the memory accesses of an instruction, as its memory operands say."""
    _, _, memory = operands.partition(" :: ")
    if not memory or opcode.startswith("INLINEASM"):
        return None
    words = _accesses(memory)
    if "store" in words:
        return "loads_and_stores" if "load" in words else "stores"
    return "loads" if "load" in words else None


def _section(head: str, name: str) -> str:
    """A top-level entry of a function's YAML."""
    start = head.find(f"\n{name}:")
    end = re.compile(r"\n\w").search(head, start + 1) if start >= 0 else None
    return head[start : end.start()] if end else ""


def _successors(line: str) -> tuple[tuple[int, float], ...]:
    found = _SUCCESSOR.findall(line)
    return tuple(
        (int(block), int(weight, 16) / _CERTAIN if weight else 1 / len(found))
        for block, weight in found
    )


def _can_be_repeated(operands: str, constant_slots: frozenset[str]) -> bool:
    """Whether it reads nothing that may change (``X86InstrInfo::isReMaterializableImpl``)."""
    read, _, memory = operands.partition(" :: ")
    for flags, register in _REGISTER.findall(read):
        is_constant = register in _CONSTANT_REGISTERS or (memory and register == _PROGRAM_COUNTER)
        if not is_constant and "implicit-def" not in flags:
            return False
    return not memory or _is_constant(memory, constant_slots)


def _accesses(memory: str) -> set[str]:
    """Return the loads, stores and flags of memory operands."""
    return {word for flags in _ACCESS.findall(memory) for word in flags.split()}


def _is_constant(memory: str, constant_slots: frozenset[str]) -> bool:
    words = _accesses(memory)
    if "store" in words or "volatile" in words:
        return False
    if words >= {"dereferenceable", "invariant"} or _CONSTANT_MEMORY.search(memory):
        return True
    slot = _FIXED_SLOT.search(memory)
    return slot is not None and slot[1] in constant_slots

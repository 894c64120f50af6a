"""The effects of one call: what it returns, the memory that it changes, and how it ends."""

from __future__ import annotations

import hashlib
import re
import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from mlgo_gym.lab.boxes._tracing import PAGE, Registers
from mlgo_gym.llvm import Signature

_KEPT: Final = ("rbx", "rbp", "r12", "r13", "r14", "r15")
_WORDS: Final = struct.Struct(f"<{PAGE // 8}Q")
_INTEGERS: Final = ("rax", "rdx")
_ST0, _XMM0, _XMM_BYTES = 32, 160, 16
_VECTOR: Final = re.compile(r"<(\d+) x (\w+)>")
_LARGE_BYTES: Final = 256
_FLOATS: Final = {"half": 2, "bfloat": 2, "float": 4, "double": 8}


@dataclass(frozen=True, slots=True)
class Effects:
    """The effects of a call, as its caller can see them.

    Attributes:
        ending: how it ended, where it did not return.
        value: the bytes of what it returned.
        registers: those that a function leaves as they were, by name.
        memory: pages that it changed, by address; what is below the caller's stack is as before.
        changes_sha256: the hash of the bytes that it changed.
    """

    ending: str
    value: bytes = b""
    registers: Mapping[str, int] = field(default_factory=dict)
    memory: Mapping[int, bytes] = field(default_factory=dict, repr=False)
    changes_sha256: str = field(default="", repr=False)

    def sha256(self) -> str:
        """The hash of all, in hexadecimal digits; of memory, of the bytes that were changed."""
        all_ = (self.ending, self.value, sorted(self.registers.items()), self.changes_sha256)
        return hashlib.sha256(repr(all_).encode()).hexdigest()


def changes_sha256(memory: Mapping[int, bytes], before: Callable[[int, int], bytes]) -> str:
    """The hash of the bytes of pages that are others than before, and of where they are."""
    made = hashlib.sha256()
    for address, page in sorted(memory.items()):
        new, old = (np.frombuffer(each, np.uint8) for each in (page, before(address, PAGE)))
        places = np.flatnonzero(new != old)
        made.update((address + places).astype("<u8").tobytes() + new[places].tobytes())
    return made.hexdigest()


def registers_of(registers: Registers) -> dict[str, int]:
    """The registers that a function leaves as they were."""
    return {name: getattr(registers, name) for name in (*_KEPT, "rsp")}


def returned(header: str, registers: Registers, floats: bytes) -> bytes:
    """The bytes of what a function has returned, by the type in its definition.

    Those of types that are returned in other ways than C's are left out.

    Args:
        header: the ``define`` line.
        registers: as it left them.
        floats: the same, as ``fxsave`` writes them.
    """
    integers = iter(_INTEGERS)
    vectors = 0
    found = b""
    for kind in _flat(Signature.read(header).result):
        size = _integer_bits(kind)
        if size:
            name = next(integers, None)
            bits = getattr(registers, name) if name else 0
            found += (bits & ((1 << size) - 1)).to_bytes(8, "little")
        elif kind == "x86_fp80":
            found += floats[_ST0 : _ST0 + 10]
        elif size := _vector_bytes(kind):
            start = _XMM0 + _XMM_BYTES * vectors
            found += floats[start : start + size]
            vectors += 1
    return found


def _integer_bits(kind: str) -> int:
    """The bits of an integer or a pointer; 0 for others."""
    if kind == "ptr":
        return 64
    return int(kind[1:]) if re.fullmatch(r"i\d+", kind) else 0


def _vector_bytes(kind: str) -> int:
    if match := _VECTOR.fullmatch(kind):
        element = _FLOATS.get(match[2]) or _integer_bits(match[2]) // 8
        return min(_XMM_BYTES, int(match[1]) * element)
    return _FLOATS.get(kind, 0)


def _flat(kind: str) -> Iterator[str]:
    """The registers' types of a type."""
    if kind == "i128":
        yield from ("i64", "i64")
    elif kind.startswith("{"):
        for part in re.findall(r"<[^>]*>|[\w.%]+", kind):
            yield from _flat(part)
    else:
        yield kind


def stack_arguments_bytes(header: str) -> int:
    """The bytes of arguments that are on the stack, which are the function's own, at most.

    Six integers and pointers and eight floating-point numbers are in registers (System V ABI).
    """
    given = Signature.read(header).parameters
    types = ["byval" if " byval(" in each.written else each.kind for each in given]
    integers = sum(2 if each == "i128" else 1 for each in types if _integer_bits(each))
    vectors = sum(1 for each in types if _vector_bytes(each))
    in_memory = sum(each in {"byval", "x86_fp80"} for each in types)
    return 8 * max(0, integers - 6) + 16 * max(0, vectors - 8) + _LARGE_BYTES * in_memory


def changed_pages(
    addresses: Iterator[int],
    before: Callable[[int, int], bytes],
    after: Callable[[int, int], bytes],
    skipped: tuple[range, ...],
) -> dict[int, bytes]:
    """Pages whose bytes are others than before.

    Args:
        addresses: of pages that may be.
        before: reads memory as it was.
        after: reads it as it is.
        skipped: addresses whose bytes do not matter.
    """
    found = {}
    for address in addresses:
        old, new = before(address, PAGE), bytearray(after(address, PAGE))
        for each in skipped:
            start, end = max(each.start, address), min(each.stop, address + PAGE)
            if start < end:
                new[start - address : end - address] = old[start - address : end - address]
        if new != old:
            found[address] = bytes(new)
    return found


def difference(
    expected: Effects,
    found: Effects,
    *,
    before: Callable[[int, int], bytes],
    name: Callable[[int], str],
    left: range,
) -> str:
    """The first difference between the effects of two calls; empty if there is none.

    Args:
        expected: of the program's own code.
        found: of a candidate's.
        before: reads memory as it was.
        name: what is at an address.
        left: addresses of the stack that nobody uses any more: what points there is not compared.
    """
    if expected.ending != found.ending:
        return f"expected it {_end(expected)}, found that it {_end(found)}"
    if expected.value != found.value:
        return f"return value: expected {_number(expected.value)}, found {_number(found.value)}"
    for register, value in expected.registers.items():
        if found.registers[register] != value:
            here = f"{found.registers[register]:#x}"
            return f"register {register}: expected {value:#x}, found {here}"
    for address in sorted({*expected.memory, *found.memory}):
        as_before = before(address, PAGE)
        pages = [each.memory.get(address, as_before) for each in (expected, found)]
        if pages[0] == pages[1]:
            continue
        words = zip(*map(_WORDS.unpack, pages), strict=True)
        for number, (one, other) in enumerate(words):
            if one != other and not (one in left and other in left):
                before_, after = (each.to_bytes(8, "little") for each in (one, other))
                first = next(i for i in range(8) if before_[i] != after[i])
                place = address + 8 * number + first
                found_ = f"expected {before_[first:].hex()}, found {after[first:].hex()}"
                return f"memory at {place:#x} ({name(place)}): {found_}"
    return ""


def _end(effects: Effects) -> str:
    return effects.ending or "returns"


def _number(value: bytes) -> str:
    return f"{int.from_bytes(value, 'little'):#x}" if value else "nothing"

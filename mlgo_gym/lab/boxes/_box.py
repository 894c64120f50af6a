"""A box: one call of one function of a program, which is stopped where the call begins."""

from __future__ import annotations

import hashlib
import math
import re
import resource
import signal
import statistics
import struct
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

import numpy as np

from corpus_tools.sandbox import call_name
from mlgo_gym.base import WorkloadError
from mlgo_gym.lab.boxes._described import NOP_BYTES
from mlgo_gym.lab.boxes._image import Image, Symbols
from mlgo_gym.lab.boxes._tracing import (
    AREA,
    BYTES,
    DATA,
    DONE,
    GADGET,
    LOOPS,
    MOST_COPIES,
    PAGE,
    RESULTS,
    START,
    Registers,
    Stop,
    Tracee,
    timer_data,
)
from mlgo_gym.llvm import Signature

_KEPT: Final = ("rbx", "rbp", "r12", "r13", "r14", "r15")
_WORDS: Final = struct.Struct(f"<{PAGE // 8}Q")
_INTEGERS: Final = ("rax", "rdx")
_ST0, _XMM0, _XMM_BYTES = 32, 160, 16
_VECTOR: Final = re.compile(r"<(\d+) x (\w+)>")
_LARGE_BYTES: Final = 256
_FLOATS: Final = {"half": 2, "bfloat": 2, "float": 4, "double": 8}

MOST_STEPS: Final = 50_000
"""More instructions than these are not counted: each takes some microseconds."""
_PRCTL, _SET_TSC, _ENABLED, _FAULTS = 157, 26, 1, 2
_READS_CLOCK: Final = (b"\x0f\x31", b"\x0f\x01\xf9")
_TRIAL_S: Final = 10
_FEW, _MOST_CALLS, _TIMED_NS = 8, 500, 5_000_000
_ROUNDS: Final = 10
_CALIBRATION_S: Final = 0.02
_CLOCK_TICKS: Final = 100


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


@dataclass(frozen=True, slots=True)
class Trial:
    """One call of a candidate in a box, or several that begin alike.

    Attributes:
        effects: what the call has done.
        difference: what it has done otherwise than the program's own code; empty, if nothing.
        instructions: that it has executed, of the functions that it calls, too; ``None`` where
            there are more than `MOST_STEPS`, or they were not asked for.
        nanoseconds: of a call that nothing disturbs, the mean; ``None`` where it was not asked for.
        calls: how many calls were timed.

    >>> Trial(Effects(""), instructions=3).difference
    ''
    """

    effects: Effects
    difference: str = ""
    instructions: int | None = None
    nanoseconds: float | None = None
    calls: int = 0


@dataclass(frozen=True, slots=True)
class Frame:
    """Facts about a function whose call is boxed.

    Attributes:
        name: of its symbol.
        header: its ``define`` line.
        entries: addresses of functions that are boxed somewhere; they begin with an instruction
            that does nothing.
        traps: names of what cannot be in a box, by the address where it begins.
        symbols: of the program.
        timer: the timer, linked.
    """

    name: str
    header: str
    entries: frozenset[int]
    traps: dict[int, str]
    symbols: Symbols
    timer: Image


class Box:
    """One call of a function, with all that it depends on, which can be repeated.

    It is a process that stays at the call: each trial is in a fork of it.

    Args:
        process: a process that is stopped where the call begins, and is the box's from then on.
        frame: what is known of the function.
        call: its number; the first is 1.
        alone: the thread that traces it.

    Attributes:
        function: its name.
        call: the number of the call.

    >>> from mlgo_gym import SAMPLE_CORPUS, Corpus
    >>> from mlgo_gym.lab.boxes import BoxedProgram
    >>> with BoxedProgram.of(Corpus.load(SAMPLE_CORPUS), "json") as program:
    ...     program.box("accept.of0").trial(counted=True).instructions
    24
    """

    def __init__(self, process: Tracee, frame: Frame, call: int, alone: ThreadPoolExecutor) -> None:
        self._process: Final = process
        self._alone = alone
        self.function: Final = frame.name
        self._frame: Final = frame
        self.call: Final = call
        self._registers: Final = process.registers
        self._floats: Final = process.floats
        self._argument_bytes: Final = stack_arguments_bytes(frame.header)
        process.call(GADGET, _PRCTL, _SET_TSC, _FAULTS)
        for address in frame.traps:
            process.write(address, b"\xcc")
        regions = [each for each in process.regions() if each.start != AREA]
        self._regions: Final = regions
        self._stack: Final = next(r for r in regions if r.start <= self._registers.rsp < r.end)

    def error(self, problem: str) -> WorkloadError:
        """The error that names the call."""
        return WorkloadError(f"function {self.function!r}, call {self.call:,}: {problem}")

    def close(self) -> None:
        """End it, before the program's other boxes."""
        self._alone.submit(self.end).result()

    def end(self) -> None:
        """End its process, in the thread that traces it."""
        self._process.kill()

    @property
    def original(self) -> Effects:
        """The effects of the program's own code.

        Raises:
            WorkloadError: the call cannot be repeated: it needs the system, or does not return.
        """
        return self._alone.submit(lambda: self._original).result()

    def trial(
        self, image: Image | None = None, *, counted: bool = False, timed: bool = False
    ) -> Trial:
        """Repeat the call with another code of the function.

        Args:
            image: the candidate; ``None`` is the program's own code.
            counted: its instructions are counted.
            timed: it is called again and again, and timed.

        Raises:
            WorkloadError: the call cannot be repeated.
        """
        return self._alone.submit(self._trial, image, counted=counted, timed=timed).result()

    def _trial(self, image: Image | None, *, counted: bool, timed: bool) -> Trial:
        expected = self._original
        effects = expected if image is None else self._effects(image)
        left = range(self._stack.start, self._registers.rsp)
        other = difference(expected, effects, before=self._process.read, name=self._name, left=left)
        instructions, nanoseconds, calls = None, None, 0
        if not effects.ending:
            instructions = self._counted(image) if counted else None
            if timed:
                nanoseconds, calls = self._timed(image, sorted(effects.memory))
        return Trial(effects, other, instructions, nanoseconds, calls)

    @cached_property
    def _original(self) -> Effects:
        effects = self._effects(None)
        if effects.ending:
            raise self.error(f"expected a call that returns, found that it {effects.ending}")
        return effects

    @property
    def size_bytes(self) -> int:
        """The memory that its process can write."""
        return sum(each.end - each.start for each in self._regions if "w" in each.rights)

    def memory_sha256(self) -> str:
        """The hash of this memory: no trial changes it."""
        found = hashlib.sha256()
        for each in self._regions:
            if "w" in each.rights:
                found.update(self._process.read(each.start, each.end - each.start))
        return found.hexdigest()

    @contextmanager
    def _fork(self, image: Image | None) -> Iterator[tuple[Tracee, int]]:
        """A copy with a candidate in it, and the address of its code."""
        try:
            process = self._process.fork(GADGET)
        except OSError as error:
            found = "expected the box's process, found that it has ended"
            raise self.error(found) from error
        try:
            entry = self._registers.rip
            if image is not None:
                image.load(process.write, entry)
                entry = image.entry
            hard = resource.prlimit(process.pid, resource.RLIMIT_CPU)[1]
            resource.prlimit(process.pid, resource.RLIMIT_CPU, (min(_TRIAL_S, hard), hard))
            yield process, entry
        finally:
            process.kill()

    def _effects(self, image: Image | None) -> Effects:
        with self._fork(image) as (process, entry):
            before = self._started(process, entry)
            ending = self._ending(process, process.run(syscalls=True))
            if ending:
                return Effects(ending)
            registers = process.registers
            memory = changed_pages(
                process.own_pages(self._regions),
                self._process.read,
                process.read,
                self._skipped(before),
            )
            value = returned(self._frame.header, registers, process.floats)
            changes = changes_sha256(memory, self._process.read)
            return Effects("", value, registers_of(registers), memory, changes)

    def _started(self, process: Tracee, entry: int) -> Registers:
        """Make the process ready for the call, which returns to `DONE`."""
        registers = self._registers.copy(rip=entry)
        process.write(registers.rsp, DONE.to_bytes(8, "little"))
        process.registers = registers
        return registers

    def _skipped(self, registers: Registers) -> tuple[range, ...]:
        """Addresses whose bytes are nobody's after the call, or the function's own."""
        own = registers.rsp + 8 + self._argument_bytes
        code = range(self._registers.rip, self._registers.rip + NOP_BYTES)
        return range(self._stack.start, own), code

    def _ending(self, process: Tracee, stop: Stop) -> str:
        """How a call ended that did not return; empty if it did."""
        if stop.status is not None:
            return f"ends the program with {stop.status}"
        if stop.is_syscall:
            return f"calls the system: {call_name(process.registers.orig_rax)}"
        rip = process.rip
        found = ""
        if stop.signal == signal.SIGTRAP and rip - 1 == DONE:
            return found
        if stop.signal == signal.SIGTRAP and rip - 1 in self._frame.traps:
            found = f"calls {self._frame.traps[rip - 1]}"
        elif stop.signal == signal.SIGSEGV and process.read(rip, 3).startswith(_READS_CLOCK):
            found = "reads the clock"
        elif stop.signal == signal.SIGXCPU:
            found = f"does not end within {_TRIAL_S} s"
        elif stop.signal:
            found = f"ends by {signal.Signals(stop.signal).name} at {self._name(rip)}"
        return found or f"stops, for a reason that is not known: {stop}"

    def _counted(self, image: Image | None) -> int | None:
        """The instructions of the call; ``None`` if there are more."""
        entries = {*self._frame.entries, self._registers.rip}
        with self._fork(image) as (process, entry):
            self._started(process, entry)
            return process.count_steps(DONE, skipped=entries, most=MOST_STEPS)

    def _timed(self, image: Image | None, pages: list[int]) -> tuple[float | None, int]:
        """Nanoseconds of a call without those of the timer, and the number of calls."""
        if len(pages) > MOST_COPIES:
            return None, 0
        with self._fork(image) as (process, entry):
            process.call(GADGET, _PRCTL, _SET_TSC, _ENABLED)
            run = self._timer(process, pages)
            if (took := run(entry, _FEW)) is None:
                return None, 0
            ticks = max(1, statistics.median(took))
            calls = int(min(_MOST_CALLS, max(_FEW, _TIMED_NS * self._ticks_per_ns / ticks)))
            targets = (entry, *LOOPS)
            means = [[_mean(run(each, calls)) for each in targets] for _ in range(_ROUNDS)]
            called, once, twice = map(min, zip(*means, strict=True))
            empty = 2 * once - twice  # of a loop that goes round no times
            return max(0.0, (called - empty) / self._ticks_per_ns), calls * _ROUNDS

    def _timer(self, process: Tracee, pages: list[int]) -> Callable[[int, int], list[int] | None]:
        """Code that calls a function so often, and returns each call's ticks."""
        for address, data in self._frame.timer.parts.items():
            process.write(address, data)
        table, at = [], DATA + (1 << 20)
        own = self._registers.rsp + 8
        pages = sorted({*pages, *range(own & -PAGE, own + self._argument_bytes, PAGE)})
        for page in pages:
            start = max(page, own)
            if page + PAGE <= self._stack.start or page >= self._stack.end:
                start = page
            end = page + PAGE
            process.write(at, self._process.read(start, end - start))
            table.append((start, at, end - start))
            at += PAGE

        def run(target: int, repeats: int) -> list[int] | None:
            state = (DATA, self._registers, self._floats)
            data = timer_data(*state, target=target, repeats=repeats, copies=table)
            process.write(DATA, data)
            process.registers = self._registers.copy(rip=self._frame.timer.entry)
            stop = process.run()
            if stop.signal != signal.SIGTRAP:
                return None
            found = process.read(DATA + RESULTS, 8 * repeats)
            return [int.from_bytes(found[i : i + 8], "little") for i in range(0, len(found), 8)]

        return run

    @cached_property
    def _ticks_per_ns(self) -> float:
        """The rate of the processor's clock, by the system's."""
        with self._fork(None) as (process, _):
            process.call(GADGET, _PRCTL, _SET_TSC, _ENABLED)
            run = self._timer(process, [])

            def marked() -> tuple[int, int]:
                run(LOOPS[0], 1)
                return process.word(DATA + START), time.perf_counter_ns()

            marked()  # the first is slow
            first, start = marked()
            time.sleep(_CALIBRATION_S)
            last, end = marked()
            return (last - first) / (end - start)

    def _name(self, address: int) -> str:
        """The name of a place in memory, in words."""
        if found := self._frame.symbols.at(address):
            return found
        if AREA <= address < AREA + BYTES:
            return "the candidate"
        for each in self._regions:
            if each.start <= address < each.end:
                return each.name.strip("[]") or "memory of its own"
        return f"{address:#x}"


def _mean(ticks: list[int] | None) -> float:
    """The mean without calls that something else of the machine has come between.

    The clock may tick as seldom as every 10 ns: the least would be too little, the mean is right.
    """
    if not ticks:
        return math.inf
    most = 1.25 * statistics.median(ticks) + _CLOCK_TICKS
    return statistics.fmean(each for each in ticks if each <= most)

"""The process that a program runs in under a JIT: LLVM's ORC through llvmlite, a stub a function.

    python -I -m mlgo_gym.lab.tiers._host DESCRIPTOR JOB ARGUMENT...

``JOB`` is a file of JSON; what was found goes to the descriptor as JSON. It runs in the sandbox
that programs run in, and ends as the program does.
"""

from __future__ import annotations

import base64
import ctypes
import json
import mmap
import os
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final

import llvmlite.binding as llvm
import numpy as np

from mlgo_gym.lab.tiers._assembly import counting, counting_back
from mlgo_gym.lab.tiers._stubs import (
    ANSWERED,
    ASKED,
    AT_BOUNDARY,
    AT_EXIT,
    BACK,
    BACK_EDGE,
    CELL,
    COUNTDOWN,
    ENDED,
    ENTRIES,
    PLACES,
    ROW,
    ROWS,
    SLOW,
    SPENT,
    STUB,
    stubs,
)
from mlgo_gym.lab.tiers._units import CODE, UnfitError, split, with_small_inlined
from mlgo_gym.llvm import name_in_assembly

_MAP_32BIT: Final = 0x40
_NEVER: Final = 1 << 62
_LIBRARIES: Final = ("libm.so.6", "libstdc++.so.6")
_MOST_EVENTS: Final = 1 << 15
_WARMING: Final = 8
_STUBS_BYTES: Final = 1 << 21
_STACK_BYTES: Final = 1 << 26
_SHADOW_BYTES: Final = 1 << 26


def main() -> None:
    """Do the job, and end as the program does."""
    log, job_path, *arguments = sys.argv[1:]
    libc = ctypes.CDLL(None, use_errno=True)
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    llvm.initialize_native_asmparser()
    with Path(job_path).open("rb") as file:
        how = json.loads(file.readline())
        if "modules" in how:
            _write(int(log), _prepared(how["modules"]))
            return
        jit = _Jit(json.loads(file.readline()), libc, **how)  # all runs are alike up to here
        job = json.loads(file.readline())
    if not jit.is_counting:
        jit.warm_up()
    _Run(jit, job, libc, int(log)).start([job_path, *arguments])


def _write(descriptor: int, found: dict[str, Any]) -> None:
    with open(descriptor, "wb", closefd=False) as file:
        file.write(json.dumps(found).encode())


def _prepared(bitcode: list[str]) -> dict[str, Any]:
    """The units of a program, from its modules."""
    context = llvm.create_context()
    modules = [llvm.parse_bitcode(base64.b64decode(each), context=context) for each in bitcode]
    first = modules[0]
    for each in modules[1:]:
        first.link_in(each)
    if all(function.name != "main" for function in first.functions):
        return {"problem": "expected a function 'main', found none"}
    try:
        text = with_small_inlined(str(first))
        inlined = llvm.parse_assembly(text, context=llvm.create_context())
        machine = _machine(0)  # which the builder looks at
        with _builder(machine, 0) as builder:
            passes = llvm.create_new_module_pass_manager()
            passes.add_always_inliner_pass()
            passes.run(inlined, builder)
        units = split(str(inlined))
    except UnfitError as error:
        return {"problem": str(error)}
    functions = [
        {
            "name": name_in_assembly(each.name),
            "instructions": each.instructions,
            "bitcode": _bitcode(each.text),
            "refers": [name_in_assembly(name) for name in each.refers],
        }
        for each in units.functions
    ]
    return {
        "functions": functions,
        "data": _bitcode(units.data),
        "variables": [name_in_assembly(name) for name in units.variables],
        "data_refers": [name_in_assembly(name) for name in units.data_refers],
    }


def _bitcode(text: str) -> str:
    module = llvm.parse_assembly(text, context=llvm.create_context())
    module.verify()
    return base64.b64encode(module.as_bitcode()).decode()


def _machine(tier: int) -> Any:
    target = llvm.Target.from_triple(llvm.get_default_triple())
    return target.create_target_machine(cpu="x86-64", opt=tier, reloc="pic", codemodel="small")


@contextmanager
def _builder(machine: Any, tier: int) -> Iterator[Any]:
    options = llvm.create_pipeline_tuning_options(speed_level=tier)
    with closing(llvm.create_pass_builder(machine, options)) as builder:
        yield builder


class _Jit:
    """Compiles units at tiers, and links them where the program runs.

    Args:
        program: its units.
        libc: the C library.
        counting: whether their code counts what it executes.
        events: whether stubs, and jumps back in code of tier 0, ask at powers of two.
    """

    def __init__(self, program: dict[str, Any], libc: Any, *, counting: bool, events: bool) -> None:
        self.functions: Final = program["functions"]
        self.is_counting: Final = counting
        self._has_events = events
        self.besides_s = 0.0
        for name in _LIBRARIES:
            try:
                ctypes.CDLL(name, ctypes.RTLD_GLOBAL)
            except OSError:
                continue
        self._libc = libc
        self.base: Final = self.memory(ROWS + ROW * len(self.functions))
        self._jit = llvm.create_lljit_compiler(_machine(0))
        names = [each["name"] for each in self.functions]
        main = names.index("main")
        text = stubs(len(names), main, self.base, counting=counting, events=events)
        code = _code_of(_assembled(text))
        self._stubs = self.memory(_STUBS_BYTES, mmap.PROT_EXEC)
        if len(code) > _STUBS_BYTES:
            raise OverflowError(f"expected at most {_STUBS_BYTES // STUB} functions, found more")
        ctypes.memmove(self._stubs, code, len(code))
        self._known = {
            name: self._stubs + STUB * number for number, name in enumerate([*names, *ENTRIES])
        }
        self._kept: list[Any] = []
        self._codes: dict[tuple[int, int], int] = {}
        self._load_data(program)

    def address(self, name: str) -> int:
        """Where a function's stub or a variable is."""
        return self._known[name]

    def back_slow(self, function: int) -> int:
        """The address that a jump back calls when its countdown is at zero."""
        return self._stubs + STUB * function + STUB // 2

    def _load_data(self, program: dict[str, Any]) -> None:
        made = _machine(0).emit_object(_parsed(program["data"]))
        self._known |= self._linked("data", made, program["data_refers"], program["variables"])

    def code(self, function: int, tier: int) -> int:
        """The address of a function's code of a tier, compiled when it is first asked for."""
        if (function, tier) not in self._codes:
            unit = self.functions[function]
            made = self._object(function, tier)
            symbol = unit["name"] + CODE
            name = f"{function}.{tier}"
            self._codes[function, tier] = self._linked(name, made, unit["refers"], [symbol])[symbol]
        return self._codes[function, tier]

    def warm_up(self) -> None:
        """Use LLVM once at each tier, so that nothing is set up while the program waits."""
        for number in range(min(len(self.functions), _WARMING)):
            for tier in range(4):
                self._object(number, tier)

    def _object(self, function: int, tier: int) -> bytes:
        back = self._has_events and tier == 0
        if self.is_counting or not back:
            return self._emitted(function, tier, back=back)
        # Its loops are counted by way of assembly, which a JIT that inserts counters early lacks.
        self._emitted(function, tier, back=False)
        start = time.thread_time()
        made = self._emitted(function, tier, back=True)
        self.besides_s += time.thread_time() - start
        return made

    def _emitted(self, function: int, tier: int, *, back: bool) -> bytes:
        unit = self.functions[function]
        module = _parsed(unit["bitcode"])
        machine = _machine(tier)
        with _builder(machine, tier) as builder:
            builder.getModulePassManager().run(module, builder)
        if not (self.is_counting or back):
            return bytes(machine.emit_object(module))
        machine.set_asm_verbosity(True)
        text = machine.emit_assembly(module)
        code = unit["name"] + CODE
        if self.is_counting:
            text = counting(text, code, self.base + PLACES["TOTAL"], self.base + PLACES["SAVED"])
        if back:
            countdown = self.base + ROWS + ROW * function + BACK
            text = counting_back(text, code, countdown, countdown - BACK + SLOW)
        return _assembled(text)

    def _linked(self, name: str, made: bytes, refers: Any, exported: Any) -> dict[str, int]:
        builder = llvm.JITLibraryBuilder().add_object_img(made).add_current_process()
        for each in ("tiers.exit", "tiers.atexit", *refers):
            if each in self._known and each not in exported:
                builder.import_symbol(each, self._known[each])
        for each in exported:
            builder.export_symbol(each)
        # Names of libraries stay taken, so each link has its own.
        tracker = builder.link(self._jit, f"{name}.{len(self._kept)}")
        self._kept.append(tracker)
        return {each: tracker[each] for each in exported}

    def memory(self, size: int, protection: int = 0) -> int:
        """Zeroed memory below 2 GiB; its address."""
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_32BIT
        protection |= mmap.PROT_READ | mmap.PROT_WRITE
        self._libc.mmap.restype = ctypes.c_void_p
        place = self._libc.mmap(None, ctypes.c_size_t(size), protection, flags, -1, 0)
        if place is None or place == ctypes.c_void_p(-1).value:
            raise MemoryError("expected memory below 2 GiB, found none")
        return int(place)


def _parsed(bitcode: str) -> Any:
    return llvm.parse_bitcode(base64.b64decode(bitcode), context=llvm.create_context())


def _code_of(data: bytes) -> bytes:
    with llvm.ObjectFileRef.from_data(data) as file:
        return next(bytes(each.data()) for each in file.sections() if each.is_text())


def _assembled(text: str) -> bytes:
    quoted = "\n".join(
        'module asm "' + line.replace("\\", "\\5C").replace('"', "\\22").replace("\t", "\\09") + '"'
        for line in text.splitlines()
    )
    triple = f'target triple = "{llvm.get_default_triple()}"\n'
    module = llvm.parse_assembly(triple + quoted + "\n", context=llvm.create_context())
    return bytes(_machine(0).emit_object(module))


class _Run:
    """One run of the program, in a thread of its own, under a schedule of compilations."""

    def __init__(self, jit: _Jit, job: dict[str, Any], libc: Any, log: int) -> None:
        self._libc = libc
        self._log = log
        self._jit = jit
        self._count = len(jit.functions)
        self._tier = job["tier"]
        self._rounds, self._status = job["rounds"], job["exit_status"]
        self._events: list[tuple[int, int, int, int]] = []
        self._at_exit: list[int] = []
        self._costs: list[tuple[int, int, float]] = []
        self._wrong: str | None = None
        self._powers = [[0, 0] for _ in range(self._count)]
        self._plan = {tuple(key): tier for key, tier in job.get("plan", ())}
        self._next = 0
        self._marks: list[list[int]] = job.get("marks", [])
        self._spent: list[tuple[int, int, int]] = []
        values = (ctypes.c_int64 * (ROW // 8 * self._count)).from_address(jit.base + ROWS)
        self._rows = np.ctypeslib.as_array(values).reshape(self._count, ROW // 8)

    def start(self, arguments: list[str]) -> None:
        """Run ``main``, and answer its thread; ends the process as the program does."""
        for number in range(self._count):
            for place in (COUNTDOWN, BACK):
                self._put(ROWS + ROW * number + place, 1)
            self._put(ROWS + ROW * number + SLOW, self._jit.back_slow(number))
        if self._jit.is_counting:
            self._set("SHADOW", self._jit.memory(_SHADOW_BYTES))
            self._set("OWNER", self._jit.memory(8))
            self._set("ACTIVE", self._get("OWNER"))
            self._size = 8 * self._count
            self._memory = self._jit.memory(self._size * (len(self._marks) + 1))
            self._set("TABLE", self._memory)
            self._set("BOUNDARY", self._marks[0][0] if self._marks else _NEVER)
        words = [each.encode() for each in arguments]
        argv = (ctypes.c_char_p * (len(words) + 1))(*words, None)
        self._set("ARGC", len(words))
        self._set("ROUNDS", self._rounds)
        self._set("ARGV", ctypes.addressof(argv))
        for name, function in (("POST", self._libc.sem_post), ("WAIT", self._libc.sem_wait)):
            self._set(name, ctypes.cast(function, ctypes.c_void_p).value or 0)
        asked, answered = (ctypes.c_void_p(self._jit.base + each) for each in (ASKED, ANSWERED))
        for each in (asked, answered):
            self._libc.sem_init(each, 0, 0)
        self._clock = time.pthread_getcpuclockid(self._thread())
        while True:
            while self._libc.sem_wait(asked):
                continue
            self._answer(self._get("KIND"), self._get("FUNCTION"))
            self._libc.sem_post(answered)

    def _thread(self) -> int:
        attributes = ctypes.create_string_buffer(256)
        thread = ctypes.c_ulong()
        self._libc.pthread_attr_init(attributes)
        stack = ctypes.c_void_p(self._jit.memory(_STACK_BYTES))
        self._libc.pthread_attr_setstack(attributes, stack, ctypes.c_size_t(_STACK_BYTES))
        start = ctypes.c_void_p(self._jit.address("tiers.start"))
        if self._libc.pthread_create(ctypes.byref(thread), attributes, start, None):
            raise MemoryError("expected a thread for the program, found that there is none")
        return thread.value

    def _answer(self, kind: int, function: int) -> None:
        if kind == ENDED:
            self._end()
        elif kind == AT_EXIT:
            self._at_exit.append(function)
        elif kind == AT_BOUNDARY:
            self._on_boundary(function)
        else:
            self._on_event(function, int(kind == BACK_EDGE))

    def _put(self, place: int, value: int) -> None:
        ctypes.c_int64.from_address(self._jit.base + place).value = value

    def _set(self, name: str, value: int) -> None:
        self._put(PLACES[name], value)

    def _get(self, name: str) -> int:
        return int(ctypes.c_int64.from_address(self._jit.base + PLACES[name]).value)

    def _on_event(self, function: int, kind: int) -> None:
        """A count of a function has reached a power of two."""
        power = self._powers[function][kind]
        self._powers[function][kind] += 1
        self._put(ROWS + ROW * function + (BACK if kind else COUNTDOWN), 1 << power)
        if len(self._events) >= _MOST_EVENTS:
            raise OverflowError(f"expected at most {_MOST_EVENTS} events, found more")
        if self._jit.is_counting:
            # A call is counted behind its event.
            self._events.append((function, kind, power, self._get("CALLS") + (not kind)))
            self._spend(len(self._events) - 1)
        self._decide(function, kind, power)

    def _decide(self, function: int, kind: int, power: int) -> None:
        """Compile what the plan says; a function's first code in any case."""
        tier = self._plan.get((function, kind, power))
        if tier is None and not kind and not power:
            tier = self._tier
        if tier is not None:
            self._switch(function, tier)

    def _spend(self, interval: int) -> None:
        """Note what each function has executed since the event before."""
        owed = self._get("TOTAL") - self._get("LAST")
        for name in ("ACTIVE", "OWNER"):
            ctypes.c_int64.from_address(self._get(name)).value += owed
        self._set("LAST", self._get("TOTAL"))
        spent = self._rows[:, SPENT // 8]
        self._spent += ((interval, int(i), int(spent[i])) for i in np.flatnonzero(spent))
        spent[:] = 0

    def _on_boundary(self, function: int) -> None:
        """A call begins at which an interval does."""
        call = self._get("CALLS")
        while self._next < len(self._marks) and self._marks[self._next][0] <= call:
            _, own, kind, power = self._marks[self._next]
            if not kind and own != function:
                self._wrong = f"call {call} is of another function than at O0"
                self._end()
            self._decide(own, kind, power)
            self._next += 1
        self._set("TABLE", self._memory + self._size * self._next)
        is_last = self._next == len(self._marks)
        self._set("BOUNDARY", _NEVER if is_last else self._marks[self._next][0] - call)

    def _switch(self, function: int, tier: int) -> None:
        start, besides = time.thread_time(), self._jit.besides_s
        self._put(ROWS + ROW * function + CELL, self._jit.code(function, tier))
        took = time.thread_time() - start - self._jit.besides_s + besides
        self._costs.append((function, tier, took))

    def _end(self) -> None:
        """Do what ``exit`` does; return where a handler is to be called first."""
        if self._at_exit and not self._wrong:
            self._set("HANDLER", self._at_exit.pop())
            return
        self._libc.fflush(None)
        found: dict[str, Any] = {
            "seconds": time.clock_gettime(self._clock),
            "costs": self._costs,
            "events": self._events,
            "calls": self._get("CALLS"),
            "wrong": self._wrong,
        }
        if self._jit.is_counting:
            self._spend(len(self._events))
            found |= self._counts()
        _write(self._log, found)
        os._exit(self._status if self._wrong else self._get("STATUS") & 0xFF)

    def _counts(self) -> dict[str, Any]:
        rows: list[list[int]] = []
        for interval in range(len(self._marks) + 1):
            place = self._memory + self._size * interval
            values = (ctypes.c_int64 * self._count).from_address(place)
            counts = np.ctypeslib.as_array(values)
            rows += ([interval, int(i), int(counts[i])] for i in np.flatnonzero(counts))
        return {"total": self._get("TOTAL"), "counts": rows, "spent": self._spent}


if __name__ == "__main__":
    main()

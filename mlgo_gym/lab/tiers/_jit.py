"""A JIT of the units of a program: LLVM's ORC through llvmlite, with a stub for each function."""

from __future__ import annotations

import base64
import ctypes
import mmap
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any, Final

import llvmlite.binding as llvm

from mlgo_gym.lab.tiers._assembly import (
    ENTRIES,
    FAILED,
    ON_FAILURE,
    PLACES,
    ROW,
    ROWS,
    STUB,
    counting,
    counting_back,
    frame_offsets,
    resumable,
    resumed,
    stubs,
)
from mlgo_gym.lab.tiers._recording import (
    CACHED,
    MOST_EVENTS,
    PRUNED,
    RESTED,
    RESTS,
    SPECIAL,
)
from mlgo_gym.lab.tiers._rest import (
    LOG_WORDS,
    ROW_WORDS,
    WATCHER,
    Framed,
    Guard,
    specialised,
    watched,
    watched_arguments,
    watcher,
)
from mlgo_gym.lab.tiers._units import CODE, UnfitError, Unit, split, with_small_inlined
from mlgo_gym.llvm import name_in_assembly

_MAP_32BIT: Final = 0x40
_ALIGNED: Final = 15
_LIBRARIES: Final = ("libm.so.6", "libstdc++.so.6")
_WARMING: Final = 8
_KEPT: Final = (0, RESTED)
"""Versions that many runs have."""
_STUBS_BYTES: Final = 1 << 21


def begin() -> None:
    """Set LLVM up for this machine."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    llvm.initialize_native_asmparser()


def prepared(bitcode: dict[str, str]) -> dict[str, Any]:
    """The units of a program, from its modules by their names."""
    context = llvm.create_context()
    modules = []
    for name, each in bitcode.items():
        try:
            modules.append(llvm.parse_bitcode(base64.b64decode(each), context=context))
            if len(modules) > 1:
                modules[0].link_in(modules[-1])
        except RuntimeError as error:
            return {"problem": f"{name}: {error}"}
    first = modules[0]
    if all(function.name != "main" for function in first.functions):
        return {"problem": "expected a function 'main', found none"}
    try:
        text = with_small_inlined(str(first))
        inlined = llvm.parse_assembly(text, context=llvm.create_context())
        machine = machine_of(0)  # which the builder looks at
        with _builder(machine, 0) as builder:
            passes = llvm.create_new_module_pass_manager()
            passes.add_always_inliner_pass()
            passes.add_register_to_memory_pass()
            passes.add_instruction_namer_pass()
            passes.run(inlined, builder)
        units = split(str(inlined))
    except UnfitError as error:
        return {"problem": str(error)}
    return {
        "functions": [_described(each) for each in units.functions],
        "data": bitcode_of(units.data),
        "variables": [name_in_assembly(name) for name in units.variables],
        "data_refers": [name_in_assembly(name) for name in units.data_refers],
    }


def _described(unit: Unit) -> dict[str, Any]:
    framed = Framed.of(unit.text, unit.code)
    bitcode = bitcode_of(unit.text)
    return {
        "name": name_in_assembly(unit.name),
        "code": unit.code,
        "instructions": unit.instructions,
        "bitcode": bitcode,
        "at_o0": bitcode_of(framed.revealed()) if framed else bitcode,
        "heads": list(framed.heads) if framed else [],
        "refers": [name_in_assembly(name) for name in unit.refers],
    }


def bitcode_of(text: str) -> str:
    """The bitcode of a module's assembly, in Base64."""
    module = llvm.parse_assembly(text, context=llvm.create_context())
    module.verify()
    return base64.b64encode(module.as_bitcode()).decode()


def machine_of(tier: int) -> Any:
    """A target machine of a tier."""
    target = llvm.Target.from_triple(llvm.get_default_triple())
    return target.create_target_machine(cpu="x86-64", opt=tier, reloc="pic", codemodel="small")


@contextmanager
def _builder(machine: Any, tier: int) -> Iterator[Any]:
    options = llvm.create_pipeline_tuning_options(speed_level=tier)
    with closing(llvm.create_pass_builder(machine, options)) as builder:
        yield builder


def optimised(bitcode: str, tier: int) -> tuple[Any, Any]:
    """The module of bitcode at a tier, and the machine that it was made for."""
    module, machine = parsed(bitcode), machine_of(tier)
    with _builder(machine, tier) as builder:
        builder.getModulePassManager().run(module, builder)
    return module, machine


def parsed(bitcode: str) -> Any:
    """The module of bitcode in Base64, in a context of its own."""
    return llvm.parse_bitcode(base64.b64decode(bitcode), context=llvm.create_context())


def code_in(data: bytes) -> bytes:
    """The machine code of an object."""
    with llvm.ObjectFileRef.from_data(data) as file:
        return next(bytes(each.data()) for each in file.sections() if each.is_text())


def assembled(text: str) -> bytes:
    """The object of an assembler's text."""
    quoted = "\n".join(
        'module asm "' + line.replace("\\", "\\5C").replace('"', "\\22").replace("\t", "\\09") + '"'
        for line in text.splitlines()
    )
    triple = f'target triple = "{llvm.get_default_triple()}"\n'
    module = llvm.parse_assembly(triple + quoted + "\n", context=llvm.create_context())
    return bytes(machine_of(0).emit_object(module))


class Jit:
    """Compiles units at tiers, and links them where the program runs.

    Args:
        program: its units.
        libc: the C library.
        counting: whether their code counts what it executes.
        events: whether stubs, guards, and jumps back in code of tier 0, ask at powers of two.
        watching: whether code of tier 0 notes its arguments' values instead.
    """

    def __init__(
        self,
        program: dict[str, Any],
        libc: Any,
        *,
        counting: bool,
        events: bool,
        watching: bool = False,
    ) -> None:
        self.functions: Final = program["functions"]
        self.is_counting: Final = counting
        self.has_events: Final = events
        self.besides_s = 0.0
        for name in _LIBRARIES:
            try:
                ctypes.CDLL(name, ctypes.RTLD_GLOBAL)
            except OSError:
                continue
        self._libc = libc
        self.base: Final = self.memory(ROWS + ROW * len(self.functions))
        self._jit = llvm.create_lljit_compiler(machine_of(0))
        names = [each["name"] for each in self.functions]
        main = names.index("main")
        text = stubs(len(names), main, self.base, counting=counting, events=events)
        code = code_in(assembled(text))
        self._stubs = self.memory(_STUBS_BYTES, mmap.PROT_EXEC)
        if len(code) > _STUBS_BYTES:
            raise OverflowError(f"expected at most {_STUBS_BYTES // STUB} functions, found more")
        ctypes.memmove(self._stubs, code, len(code))
        self._known = {
            name: self._stubs + STUB * number for number, name in enumerate([*names, *ENTRIES])
        }
        self._kept: list[Any] = []
        self._codes: dict[tuple[int, int], int] = {}
        self._given: dict[tuple[int, int], bytes] = {}
        self.keeps: dict[tuple[int, int], bytes] | None = None
        self._offsets: dict[int, list[int]] = {}
        self._sizes: dict[int, int] = {}
        self._framed: dict[int, Framed] = {}
        self._ways: dict[int, int] = {}
        self._load_data(program)
        self.special: dict[int, tuple[int, list[int]]] = {}
        self.kept: dict[int, list[int]] = {}
        self.watch = Watch(self) if watching else None

    def address(self, name: str) -> int:
        """Where a function's stub or a variable is."""
        return self._known[name]

    def stub(self, function: int) -> int:
        """The address of a function's stub."""
        return self._stubs + STUB * function

    def row(self, function: int) -> int:
        """The address of a function's own data."""
        return self.base + ROWS + ROW * function

    def _load_data(self, program: dict[str, Any]) -> None:
        made = machine_of(0).emit_object(parsed(program["data"]))
        self._known |= self._linked("data", made, program["data_refers"], program["variables"])

    def code(self, function: int, version: int) -> int:
        """The address of a function's code of a version, or of its rest from `RESTS` on.

        It is compiled when it is first asked for.
        """
        if (function, version) not in self._codes:
            unit = self.functions[function]
            made = self._given.get((function, version)) or self._object(function, version)
            if self.keeps is not None and version in _KEPT:
                self.keeps[function, version] = made
            symbol = unit["name"] + CODE
            name = f"{function}.{version}"
            has_way = not version and not self.watch and self.can_resume(function)
            way = [resumed(symbol)] if has_way else []
            found = self._linked(name, made, unit["refers"], [symbol, *way])
            self._codes[function, version] = found[symbol]
            for each in way:
                self._ways[function] = found[each]
        return self._codes[function, version]

    def kept_objects(self) -> dict[str, Any]:
        """The objects that were kept, for `take` in a run that is alike."""
        objects = [
            [
                *key,
                base64.b64encode(made).decode(),
                self._offsets.get(key[0]),
                self._sizes.get(key[0]),
            ]
            for key, made in (self.keeps or {}).items()
        ]
        return {"base": self.base, "objects": objects}

    def take(self, given: dict[str, Any]) -> None:
        """Use objects that another run has kept, which stand in no other place."""
        if given["base"] != self.base:
            return
        for function, version, made, offsets, size in given["objects"]:
            self._given[function, version] = base64.b64decode(made)
            if not version and offsets is not None:
                self._offsets[function], self._sizes[function] = offsets, size

    def warm_up(self) -> None:
        """Use LLVM once at each tier, so that nothing is set up while the program waits."""
        for number in range(min(len(self.functions), _WARMING)):
            for tier in range(4):
                self._object(number, tier)

    def _object(self, function: int, version: int) -> bytes:
        unit = self.functions[function]
        if version >= RESTS:
            with self._besides():
                bitcode = self._rest(function, version - RESTS)
            return self._emitted(bitcode, unit, RESTED)
        if version >= SPECIAL and function not in (
            self.kept if version == PRUNED else self.special
        ):
            version = RESTED
        if version >= SPECIAL:
            code = self.code(function, 0)
            with self._besides():
                bitcode = self._guessing(function, version, code)
            return self._emitted(bitcode, unit, RESTED)
        bitcode = unit["bitcode" if version else "at_o0"]
        if self.watch and not version:
            self._emitted(bitcode, unit, 0, function)  # to see its frame
            return self._emitted(self.watch.watched(function), unit, 0)
        if version:
            return self._emitted(bitcode, unit, version)
        if not self.is_counting:
            # What follows goes by way of assembly, which a JIT that made it itself would not.
            self._emitted(bitcode, unit, 0)
        with self._besides():
            return self._emitted(bitcode, unit, 0, function)

    @contextmanager
    def _besides(self) -> Iterator[None]:
        """Note the time of what a JIT would not do while the program waits."""
        before, start = self.besides_s, time.thread_time()
        yield
        self.besides_s = before + time.thread_time() - start

    def can_resume(self, function: int) -> bool:
        """Tell whether a function's code at O0 can be gone on with in any block."""
        return bool(self._sizes.get(function))

    def framed(self, function: int) -> Framed:
        """A function whose blocks share a frame; it is taken apart once."""
        if function not in self._framed:
            unit = self.functions[function]
            framed = Framed.of(str(parsed(unit["bitcode"])), unit["code"])
            if framed is None or function not in self._offsets:
                raise LookupError(f"expected a frame of {unit['name']} at O0, found none")
            self._framed[function] = framed
        return self._framed[function]

    def _rest(self, function: int, head: int) -> str:
        framed = self.framed(function)
        return bitcode_of(framed.rest(framed.heads[head], self._offsets[function]))

    def _guessing(self, function: int, version: int, code: int) -> str:
        """The bitcode of a version that guesses, of a function whose code at O0 is known."""
        unit = self.functions[function]
        countdown, ask = self.row(function) + FAILED, self.stub(function) + ON_FAILURE
        if version < PRUNED:
            argument, values = self.special[function]
            count = CACHED[version - SPECIAL] if version < PRUNED - 1 else len(values)
            text, guard = str(parsed(unit["bitcode"])), Guard(code, countdown, ask)
            return bitcode_of(specialised(text, unit["code"], argument, values[:count], guard))
        framed = self.framed(function)
        kept = [framed.heads[number] for number in self.kept[function]]
        guard = Guard(self._ways[function], countdown, ask)
        size = self._sizes[function] + _ALIGNED & ~_ALIGNED
        return bitcode_of(framed.pruned(kept, self._offsets[function], size, guard))

    def _emitted(
        self, bitcode: str, unit: dict[str, Any], tier: int, own: int | None = None
    ) -> bytes:
        """An object; of tier 0, one that others can resume, of the function ``own``."""
        module, machine = optimised(bitcode, tier)
        if own is None and not self.is_counting:
            return bytes(machine.emit_object(module))
        machine.set_asm_verbosity(True)
        text = machine.emit_assembly(module)
        code = unit["name"] + CODE
        if self.is_counting:
            text = counting(text, code, self.base + PLACES["TOTAL"], self.base + PLACES["SAVED"])
        if own is not None:
            self._offsets[own] = frame_offsets(text)
            heads = {name: number for number, name in enumerate(unit["heads"])}
            text, self._sizes[own] = resumable(text, code, heads)
            if self.has_events:
                text = counting_back(text, code, self.row(own), heads)
        return assembled(text)

    def add(self, name: str, made: bytes) -> None:
        """Link an object, whose one function others can call."""
        self._known |= self._linked(name, made, (), [name])

    def _linked(self, name: str, made: bytes, refers: Any, exported: Any) -> dict[str, int]:
        builder = llvm.JITLibraryBuilder().add_object_img(made).add_current_process()
        for each in ("tiers.exit", "tiers.atexit", WATCHER, *refers):
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


class Watch:
    """Values that the arguments of a JIT's functions have had, and blocks that were reached."""

    def __init__(self, jit: Jit) -> None:
        self._jit = jit
        self._log = jit.memory(8 + 8 * LOG_WORDS * MOST_EVENTS)
        self._rows: dict[int, tuple[int, int]] = {}
        self._blocks: dict[int, int] = {}
        self._kept: list[tuple[int, int]] = []
        made = machine_of(RESTED)
        text = watcher(self._log, MOST_EVENTS, jit.base + PLACES["CALLS"])
        jit.add(WATCHER, made.emit_object(parsed(bitcode_of(text))))

    def watched(self, function: int) -> str:
        """The bitcode of a function that notes its arguments' values."""
        unit = self._jit.functions[function]
        text = str(parsed(unit["bitcode"]))
        places = watched_arguments(text, unit["code"])
        start = self._jit.memory(8 * ROW_WORDS * max(len(places), 1))
        rows = {start + 8 * ROW_WORDS * i: place for i, place in enumerate(places)}
        self._rows |= {row: (function, place) for row, place in rows.items()}
        self._blocks[function] = blocks = self._jit.memory(max(len(unit["heads"]), 1))
        own = [(place, row) for row, place in rows.items()]
        return bitcode_of(watched(text, unit["code"], own, blocks))

    def profiled(self, function: int) -> None:
        """Note which blocks a function has reached, if it can be pruned to them."""
        heads = self._jit.functions[function]["heads"]
        if not self._jit.can_resume(function):
            return
        reached = ctypes.string_at(self._blocks[function], len(heads))
        kept = [block for block in range(len(heads)) if reached[block]]
        if self._jit.framed(function).leaves([heads[block] for block in kept]):
            self._kept += ((function, block) for block in kept)

    def found(self) -> dict[str, Any]:
        """The arguments' first values, and the calls at which later ones reach powers of two."""
        words = (ctypes.c_int64 * ROW_WORDS).from_address
        count, *log = (ctypes.c_int64 * (1 + LOG_WORDS * MOST_EVENTS)).from_address(self._log)
        if count > MOST_EVENTS:
            raise OverflowError(f"expected at most {MOST_EVENTS} events of values, found more")
        entries = [log[i : i + LOG_WORDS] for i in range(0, LOG_WORDS * count, LOG_WORDS)]
        return {
            "values": [[*place, *words(row)] for row, place in self._rows.items()],
            "later": [[*self._rows[row], *rest] for row, *rest in entries],
            "kept": self._kept,
        }

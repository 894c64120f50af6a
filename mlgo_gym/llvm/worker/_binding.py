"""LLVM in this process, by llvmlite: nothing else of the compiler imports that.

Modules are compiled inside a worker process (`llvm.worker._child`), since LLVM's options are
process-wide, its assertions abort and a compilation waits inside a read for every decision.
Nothing here imports numpy: a worker holds LLVM, a few standard modules and one thread. Native
models (`mlgo_gym.model`) are loaded in the process that asks them.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import llvmlite
import llvmlite.binding as llvm

from mlgo_gym.corpus import comdat_groups
from mlgo_gym.llvm._request import NativeObject
from mlgo_gym.llvm._target import MARKING, Target
from mlgo_gym.llvm.inside._target_options import set_sections
from mlgo_gym.llvm.text._function_split import function_texts
from mlgo_gym.llvm.text._module_text import ModuleText, name_in_assembly

_LEVELS: Final = {
    "O0": (0, 0),
    "O1": (1, 1),
    "O2": (2, 2),
    "O3": (3, 3),
    "Os": (2, 2),
    "Oz": (2, 2),
}
"""Pipeline and code generation level of each of clang's levels (clang ``BackendUtil.cpp``)."""

_O1: Final = (1, 0)
"""LLVM's level O1: its levels for speed and for size."""

_SIZE_LEVELS: Final = {"Os": 1, "Oz": 2}
"""LLVM's size level of those of clang's levels that have one (``OptimizationLevel.cpp``)."""

_FOR_SIZE: Final = {"Os": {b"optsize", b"minsize", b"optnone"}, "Oz": {b"minsize", b"optnone"}}
"""Attributes of functions that are optimised alike with and without the size level."""


class BitcodeError(Exception):
    """LLVM refused a module; the message is LLVM's."""


@contextmanager
def _refusals() -> Iterator[None]:
    """Raise llvmlite's errors as `BitcodeError`."""
    try:
        yield
    except (RuntimeError, UnicodeDecodeError) as error:
        raise BitcodeError(str(error).strip()) from error


def embedded_version() -> str:
    """The version of the LLVM that llvmlite embeds, such as ``22.1.0``."""
    return ".".join(str(part) for part in llvm.llvm_version_info)


def llvmlite_version() -> str:
    """The version of llvmlite."""
    return str(llvmlite.__version__)


_WRITTEN_BY_TARGETS: Final = ("-min-jump-table-entries=4", "-max-jump-table-size=4294967295")


class Session:
    """LLVM's process-wide state: its targets and its options."""

    def __init__(self) -> None:
        llvm.initialize_all_targets()
        llvm.initialize_all_asmprinters()
        llvm.initialize_native_asmparser()
        host_cpu()
        self._options: dict[str, str] = {}

    def set_options(self, options: Iterable[str]) -> None:
        """Set those of LLVM's options that do not hold; it ignores unknown ones without a word."""
        for option in options:
            name = option.partition("=")[0]
            if self._options.get(name) != option:
                llvm.set_option("mlgo_gym", option)
                self._options[name] = option

    def undo_targets(self) -> None:
        """Take back what code generation for another target has left in LLVM's options.

        PowerPC, WebAssembly, Hexagon, BPF and AVR say how they like their jump tables by
        ``setMinimumJumpTableEntries`` and ``setMaximumJumpTableSize``, which write the process's
        options (LLVM's ``TargetLoweringBase.cpp``).
        """
        for option in _WRITTEN_BY_TARGETS:
            llvm.set_option("mlgo_gym", self._options.get(option.partition("=")[0], option))


def parse(data: bytes, *, is_text: bool, verify: bool) -> Any:
    """Parse a module in a context of its own."""
    context = llvm.create_context()
    with _refusals():
        if is_text:
            module = llvm.parse_assembly(data.decode("utf-8"), context)
        else:
            module = llvm.parse_bitcode(data, context)
        if verify:
            module.verify()
    if not module.triple:
        module.triple = llvm.get_default_triple()
    return module


def address(module: Any) -> int:
    """Return the address of LLVM's ``Module``, or of a value of it, in this process."""
    return ctypes.cast(module._ptr, ctypes.c_void_p).value or 0  # noqa: SLF001 - there is no other way


def function_addresses(module: Any, names: Collection[str]) -> list[int]:
    """Return the addresses of the module's functions of these names, in its order."""
    wanted = frozenset(names)
    if not wanted:
        return []
    name_of = llvm.ffi.lib.LLVMPY_GetValueName  # its bytes, which need not be UTF-8
    return [
        address(function)
        for function in module.functions
        if name_of(function).decode("utf-8", "replace") in wanted  # as LLVM's contexts have it
    ]


def optimize(module: Any, target: Target, level_address: int = 0) -> str:
    """Optimise a module, which changes it, as clang does; returns the level that was used.

    Args:
        module: the module.
        target: how it is compiled.
        level_address: where LLVM's constant ``OptimizationLevel::O1`` is in this process; 0 where
            that is not known, and Os and Oz are refused unless all functions are marked for size.

    Raises:
        BitcodeError: LLVM refuses the module, or the level cannot be had.
    """
    level = target.opt_level or _attribute_level(module)
    if level.endswith(MARKING) and target.run_passes:
        _mark_for_size(module, _plain(level))
    with _refusals(), _target_machine(module, level, target) as machine:
        _optimize(module, machine, _plain(level), target, level_address)
    return level


def _plain(level: str) -> str:
    return level.removesuffix(MARKING)


def _mark_for_size(module: Any, level: str) -> None:
    """Mark functions as clang's front end does at a level (``CodeGenModule.cpp``).

    ``-Os`` is ``optsize``, ``-Oz`` is ``minsize`` besides, on all but those with ``optnone``, which
    LLVM's verifier refuses to see with either.
    """
    for function in module.functions:
        if b"optnone" not in _attributes(function):
            function.add_function_attribute("optsize")
            if level == "Oz":
                function.add_function_attribute("minsize")


def emit_object(module: Any, target: Target, level: str) -> bytes:
    """Generate the code of an optimised module: its object's bytes."""
    with _refusals(), _target_machine(module, level, target) as machine:
        return bytes(machine.emit_object(module))


def emit_text(module: Any, target: Target, level: str, *, comments: bool = False) -> bytes:
    """Generate assembly, or MIR where LLVM's options end code generation early."""
    with _refusals(), _target_machine(module, level, target) as machine:
        machine.set_asm_verbosity(comments)
        return str(machine.emit_assembly(module)).encode()


def extract_functions(module: Any, names: Sequence[str]) -> list[bytes]:
    """Functions of an optimised module, each as the bitcode of a module of its own."""
    text = ModuleText.read(str(module))
    printed = {name_in_assembly(name): name for name in text.functions}
    if missing := [name for name in names if name not in printed]:
        raise BitcodeError(f"expected a definition of {missing[0]!r}, found none")
    alone = dict(function_texts(text, [printed[name] for name in names]))
    return [assemble(alone[printed[name]]) for name in names]


def assemble(text: str) -> bytes:
    """A module's text as bitcode."""
    with parse(text.encode("utf-8", "surrogateescape"), is_text=True, verify=True) as module:
        return to_bitcode(module)


def to_bitcode(module: Any) -> bytes:
    """A module as bitcode."""
    return bytes(module.as_bitcode())


def section_sizes(data: bytes) -> list[tuple[str, int, str]]:
    """Name, bytes and, of ELF's, COMDAT group or ``""`` of an object's named sections, in order."""
    groups = comdat_groups(data)
    with llvm.ObjectFileRef.from_data(data) as file:
        return [
            (name.decode("utf-8", "replace"), section.size(), groups.get(index, ""))
            for index, section in enumerate(file.sections())
            if (name := section.name())
        ]


def section_contents(data: bytes, prefix: str) -> list[bytes]:
    """The bytes of each section of an object whose name starts so, in its order."""
    with llvm.ObjectFileRef.from_data(data) as file:
        return [
            bytes(section.data())
            for section in file.sections()
            if (section.name() or b"").startswith(prefix.encode())
        ]


def _target_machine(module: Any, level: str, target: Target) -> Any:
    machine = llvm.Target.from_triple(module.triple).create_target_machine(
        cpu=target.cpu,
        features=target.features,
        opt=_LEVELS[_plain(level)][1],
        reloc=target.relocation_model,
        codemodel=target.code_model,
        abiname=target.abi,
    )
    set_sections(
        machine,
        functions=target.function_sections,
        data=target.data_sections,
        addrsig=target.addrsig,
    )
    if not module.data_layout:
        module.data_layout = str(machine.target_data)
    return machine


def _optimize(
    module: Any, machine: Any, level: str, target: Target, level_address: int = 0
) -> None:
    if not target.run_passes:
        return
    size_level = _SIZE_LEVELS.get(level, 0)
    if size_level and not level_address and (name := _not_for_size(module, level)) is not None:
        raise BitcodeError(
            f"-{level}: not honoured: expected a libllvmlite with its table of symbols, since "
            f"function {name!r} has no attribute for size; install llvmlite's wheel or compile at "
            "-O2"
        )
    # A pass builder keeps callbacks into its last run, so every run needs one of its own; and
    # llvmlite never frees those callbacks, 31 kB when it is built and 72 kB more when it has run.
    # That is why workers are replaced in time.
    with (
        _tuning(level, target) as tuning,
        llvm.create_pass_builder(machine, tuning) as builder,
        _module_passes(builder, tuning, size_level and level_address, size_level) as passes,
    ):
        passes.run(module, builder)


def _module_passes(builder: Any, tuning: Any, level_address: int, size_level: int) -> Any:
    """Build the pipeline of a level.

    LLVM's ``PassBuilder`` takes an ``OptimizationLevel`` of two numbers, for speed and for size,
    and llvmlite passes its constants O0 to O3. The size decides on the inliner's thresholds, loop
    rotation, the wrapping of library calls, specialised functions and passes for OpenMP
    (``PassBuilderPipelines.cpp``). So while the pipeline is built, O1 is the level that is meant:
    nothing compares with O1 in a pipeline that is not one of LTO.
    """
    if not level_address:
        return builder.getModulePassManager()
    constant = (ctypes.c_uint * 2).from_address(level_address)
    if tuple(constant) != _O1:
        raise BitcodeError(f"LLVM's level O1: expected {_O1}, found {tuple(constant)}")
    tuning.speed_level, constant[:] = 1, [2, size_level]
    try:
        return builder.getModulePassManager()
    finally:
        constant[:] = list(_O1)


def _not_for_size(module: Any, level: str) -> str | None:
    """Return the first function that only the size level optimises for size, if there is one."""
    for function in module.functions:
        if not function.is_declaration and _attributes(function).isdisjoint(_FOR_SIZE[level]):
            return str(function.name)
    return None


def _tuning(level: str, target: Target) -> Any:
    """Clang's switches for a level (``clang/lib/Driver/ToolChains/CommonArgs.cpp``)."""
    speed = level in {"O2", "O3"}
    tuning = llvm.create_pipeline_tuning_options(_LEVELS[level][0])
    tuning.loop_vectorization = _first(target.vectorize_loops, speed or level == "Os")
    tuning.slp_vectorization = _first(target.vectorize_slp, speed or level in {"Os", "Oz"})
    tuning.loop_unrolling = _first(target.unroll_loops, _LEVELS[level][0] > 1)
    tuning.loop_interleaving = tuning.loop_unrolling
    return tuning


def _attribute_level(module: Any) -> str:
    attributes = {word for function in module.functions for word in _attributes(function)}
    return "Oz" if b"minsize" in attributes else "Os" if b"optsize" in attributes else "O2"


def _attributes(function: Any) -> set[bytes]:
    return {word for each in function.attributes for word in each.split()}


def _first(chosen: bool | None, default: bool) -> bool:
    return default if chosen is None else chosen


def compile_native(text: str, cpu: str | None, triple: str | None = None) -> NativeObject:
    """Compile a module's text at -O3 for this machine's CPU or another, by its name or triple."""
    _initialize_native()
    name, features = (cpu or "generic", "") if cpu or triple else host_cpu()
    target = Target("O3", "pic", "default", None, None, None)
    machine = _target_of(triple).create_target_machine(
        # Loaded into a process with much memory, code and constants may be too far apart for the
        # small model, and LLVM aborts. Other machines may know nothing larger.
        cpu=name,
        features=features,
        opt=3,
        reloc="pic",
        codemodel="large" if triple in {None, default_triple()} else "small",
    )
    with machine, parse(text.encode(), is_text=True, verify=True) as module:
        module.triple = machine.triple
        module.data_layout = str(machine.target_data)
        if module.data_layout.startswith("E"):  # constants are the bytes of a TFLite file
            raise BitcodeError(f"expected a little-endian target, found {triple!r}")
        with _refusals():
            _optimize(module, machine, "O3", target)
            data = machine.emit_object(module)
        return NativeObject(data, name, features, module.triple, embedded_version())


def _target_of(triple: str | None) -> Any:
    if triple is None:
        return llvm.Target.from_default_triple()
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    try:
        return llvm.Target.from_triple(triple)
    except RuntimeError as error:
        raise BitcodeError(f"expected a target that LLVM has, found {triple!r}") from error


@functools.cache
def host_cpu() -> tuple[str, str]:
    """This CPU's name and features; LLVM may read files for them, so it is asked while it can."""
    return llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten()


def host_features() -> frozenset[str]:
    """The features that this machine's CPU has."""
    return frozenset(name for name, has in llvm.get_host_cpu_features().items() if has)


class LoadedCode:
    """An object in this process, with IR linked against it, as it is; close it to unload."""

    def __init__(self, data: bytes, text: str) -> None:
        _initialize_native()
        machine = llvm.Target.from_default_triple().create_target_machine(
            opt=1, codemodel="jitdefault", jit=True
        )
        with _refusals():
            module = llvm.parse_assembly(text, llvm.create_context())
            module.triple = machine.triple
            self._engine: Any = llvm.create_mcjit_compiler(module, machine)
            self._engine.add_object_file(llvm.ObjectFileRef.from_data(data))
            self._engine.finalize_object()

    def address(self, name: str) -> int:
        """Return the address of a function; 0 where there is none of that name."""
        return int(self._engine.get_function_address(name))

    def close(self) -> None:
        """Unload; safe to call twice. Nothing may run or refer to the code any more."""
        self._engine.close()


def _initialize_native() -> None:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()


def default_triple() -> str:
    """LLVM's name of this machine."""
    return str(llvm.get_default_triple())

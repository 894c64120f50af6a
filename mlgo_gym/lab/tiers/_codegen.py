"""LLVM as the units of a program use it: splitting, optimising, and machine code."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import llvmlite.binding as llvm

from mlgo_gym.lab.tiers._rest import Framed
from mlgo_gym.lab.tiers._units import UnfitError, Unit, split, with_small_inlined
from mlgo_gym.llvm import name_in_assembly


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
    """The bitcode of a module's assembly, in Base64.

    Raises:
        RuntimeError: LLVM does not take it.
    """
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

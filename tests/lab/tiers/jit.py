"""Compiles LLVM assembly in this process, for tests that look at code and call it."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import llvmlite.binding as llvm  # noqa: TID251 - it compiles here

from mlgo_gym.lab.tiers._rest import Framed
from mlgo_gym.lab.tiers._units import Unit, split, with_small_inlined

llvm.initialize_native_target()
llvm.initialize_native_asmprinter()
llvm.initialize_native_asmparser()


def unit(text: str, name: str) -> Unit:
    """A function of a program that was split."""
    module = llvm.parse_assembly(with_small_inlined(text), context=llvm.create_context())
    with llvm.create_pass_builder(machine(0), llvm.create_pipeline_tuning_options()) as builder:
        passes = llvm.create_new_module_pass_manager()
        passes.add_always_inliner_pass()
        passes.add_register_to_memory_pass()
        passes.add_instruction_namer_pass()
        passes.run(module, builder)
    return next(each for each in split(str(module)).functions if each.name == name)


def framed(text: str, name: str) -> Framed:
    """The same, whose blocks share a frame."""
    own = unit(text, name)
    found = Framed.of(own.text, own.code)
    assert found is not None
    return found


def machine(tier: int) -> Any:
    target = llvm.Target.from_triple(llvm.get_default_triple())
    return target.create_target_machine(cpu="x86-64", opt=tier, reloc="pic")


def optimised(text: str, tier: int = 2) -> Any:
    """The module at a tier."""
    module = llvm.parse_assembly(text, context=llvm.create_context())
    module.verify()
    options = llvm.create_pipeline_tuning_options(speed_level=tier)
    made = machine(tier)
    with llvm.create_pass_builder(made, options) as builder:
        builder.getModulePassManager().run(module, builder)
    return module


def assembly(text: str, tier: int = 2) -> str:
    """The machine code of a module at a tier."""
    return str(machine(tier).emit_assembly(optimised(text, tier)))


class Jit:
    """Modules that are linked into this process as long as it lives."""

    def __init__(self) -> None:
        self._jit = llvm.create_lljit_compiler(machine(2))
        self._kept: list[Any] = []

    def function(self, text: str, name: str, *kinds: Any, tier: int = 2) -> Callable[..., Any]:
        """A function of a module at a tier, of a result's and of arguments' types."""
        made = machine(tier).emit_object(optimised(text, tier))
        builder = llvm.JITLibraryBuilder().add_object_img(made).add_current_process()
        tracker = builder.export_symbol(name).link(self._jit, f"{name}.{len(self._kept)}")
        self._kept.append(tracker)
        return ctypes.CFUNCTYPE(*kinds)(tracker[name])

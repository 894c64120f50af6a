"""Products that a worker makes of a module, as JSON values and raw bytes."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, astuple
from typing import Any, Final

from mlgo_gym.llvm._request import (
    CompileRequest,
    DescribeRequest,
    LocalizeRequest,
    NativeRequest,
    SplitRequest,
    SymbolsRequest,
)
from mlgo_gym.llvm.inside._local import Localizer
from mlgo_gym.llvm.text._fingerprint import bodies_of
from mlgo_gym.llvm.text._flow import counts_of
from mlgo_gym.llvm.text._function_split import function_texts
from mlgo_gym.llvm.text._module_text import ModuleText, name_in_assembly
from mlgo_gym.llvm.text._profile import profile_of, summary_of
from mlgo_gym.llvm.worker import _binding as binding

Answer = tuple[dict[str, Any], bytes]
"""JSON values, and raw bytes."""


class Estimates:
    """Texts that an estimate of executed instructions needs, beside an object."""

    def __init__(self, session: binding.Session) -> None:
        self._session = session
        self._counted: tuple[bytes, dict[str, int]] = b"", {}

    def before(self, module: Any, data: bytes) -> dict[str, int]:
        """Sum up a module's counts before it is optimised; the last module's are kept."""
        key = hashlib.sha256(data).digest()
        if self._counted[0] != key:
            text = ModuleText.read(str(module))
            executed = sum(each.instructions for each in counts_of(text).functions.values())
            largest = summary_of(text).get("MaxCount", 0)
            self._counted = key, {"largest_count": largest, "executed_before": executed}
        return self._counted[1]

    def assembly(self, bitcode: bytes, request: CompileRequest, level: str) -> bytes:
        """The assembly of an optimised module, while LLVM prints how often its blocks run."""
        self._session.set_options(("-print-machine-bfi=true",))
        with binding.parse(bitcode, is_text=False, verify=False) as module:
            return binding.emit_text(module, request.target, level, comments=True)


def _object(module: Any, request: CompileRequest, level: str) -> Answer:
    output = binding.emit_object(module, request.target, level)
    answer = {
        "sections": binding.section_sizes(output),
        "object_sha256": hashlib.sha256(output).hexdigest(),
    }
    return answer, output if request.keep_object else b""


def _bitcode(module: Any, *_: Any) -> Answer:
    return {}, binding.to_bitcode(module)


def _text(module: Any, request: CompileRequest, level: str) -> Answer:
    return {}, binding.emit_text(module, request.target, level)


def _functions(module: Any, request: CompileRequest, _: str) -> Answer:
    modules = binding.extract_functions(module, request.task.functions)
    return {"sizes": [len(each) for each in modules]}, b"".join(modules)


def _printed(module: Any, request: CompileRequest, _: str) -> Answer:
    if not request.task.functions:
        text = str(module).encode("utf-8", "backslashreplace")
        return {"sizes": [len(text)]}, text
    functions = ModuleText.read(str(module)).functions.values()
    found = {name_in_assembly(each.name): each for each in functions}
    texts = [str(found[name]) if name in found else "" for name in request.task.functions]
    written = [text.encode("utf-8", "backslashreplace") for text in texts]
    return {"sizes": [len(each) for each in written]}, b"".join(written)


PRODUCTS: Final = {
    "object": _object,
    "bitcode": _bitcode,
    "assembly": _text,
    "machine code": _text,
    "functions": _functions,
    "text": _printed,
}
"""The makers of each product of a `Task`."""


def describe(request: DescribeRequest, data: bytes) -> Answer:
    """Describe a module as it stands."""
    with binding.parse(data, is_text=request.is_text, verify=True) as module:
        text = ModuleText.read(str(module))
    bodies = [astuple(body) for body in bodies_of(text)]
    answer = {"bodies": bodies, "profile": asdict(profile_of(text))}
    if request.counts:
        answer |= {"counts": asdict(counts_of(text)), "summary": summary_of(text)}
    return answer, b""


_MERGED: Final = "linkonce_odr"
_BY_LINKAGE: Final = {"available_externally": "needed", "internal": "", "private": ""}


def symbols(request: SymbolsRequest, data: bytes) -> Answer:
    """Names of functions: defined here, merged by linkers with other copies, and needed."""
    found: dict[str, list[str]] = {"defined": [], "merged": [], "needed": []}
    with binding.parse(data, is_text=request.is_text, verify=False) as module:
        for function in module.functions:
            name = function.name.removeprefix("\1")
            linkage = function.linkage.name
            kind = "needed" if function.is_declaration else _BY_LINKAGE.get(linkage, "defined")
            if kind and not name.startswith("llvm."):
                found[kind].append(name)
            if kind == "defined" and linkage == _MERGED:
                found["merged"].append(name)
    return found, b""


def localize(request: LocalizeRequest, data: bytes, addresses: Mapping[str, int]) -> Answer:
    """The module with functions that are local, and how many."""
    localizer = Localizer(addresses, request.shared, is_exported=request.is_exported)
    with binding.parse(data, is_text=request.is_text, verify=False) as module:
        count = localizer.make_local(binding.address(module))
        return {"functions": count}, binding.to_bitcode(module)


def native(request: NativeRequest, data: bytes) -> Answer:
    """An object, and LLVM's names of what it is for."""
    about = asdict(binding.compile_native(data.decode(), request.cpu, request.triple))
    code = about.pop("data")
    return {"native": about}, code


def split(request: SplitRequest, data: bytes, level_address: int) -> Answer:
    """Each function of an optimised module as a module of its own."""
    with binding.parse(data, is_text=request.is_text, verify=True) as module:
        level = binding.optimize(module, request.target, level_address)
        text = ModuleText.read(str(module))
    counts = {
        name: function.instruction_count
        for name, function in text.functions.items()
        if function.linkage != "available_externally"
        and function.instruction_count >= request.minimum_instructions
    }
    functions, payload = [], bytearray()
    for name, assembly in function_texts(text, counts):
        bitcode = binding.assemble(assembly)
        payload += bitcode
        functions.append([name_in_assembly(name), counts[name], len(bitcode)])
    return {"opt_level": level, "functions": functions}, bytes(payload)

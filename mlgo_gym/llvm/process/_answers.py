"""What a worker answers about a module besides compiling it; runs in the worker process.

Each takes a request and the module's bytes, and returns an answer that is JSON, and raw bytes.
`llvm.process._inquiry` asks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from mlgo_gym.llvm.process import _binding as binding
from mlgo_gym.llvm.text._fingerprint import bodies_of
from mlgo_gym.llvm.text._function_split import function_texts
from mlgo_gym.llvm.text._module_text import ModuleText
from mlgo_gym.llvm.text._names import name_in_assembly
from mlgo_gym.llvm.text._profile import profile_of

_Answer = tuple[dict[str, Any], bytes]


def _describe(request: dict[str, Any], data: bytes) -> _Answer:
    """The bodies and the profile of a module, as it is."""
    with binding.parse(data, is_text=request["is_text"], verify=True) as module:
        text = ModuleText.read(str(module))
    bodies = [body.to_json() for body in bodies_of(text)]
    return {"bodies": bodies, "profile": profile_of(text).to_json()}, b""


def _split_functions(request: dict[str, Any], data: bytes) -> _Answer:
    """A module of its own for each function of the optimised module, one after the other."""
    with binding.parse(data, is_text=request["is_text"], verify=True) as module:
        level = binding.optimize(module, binding.Target(**request["target"]))
        text = ModuleText.read(str(module))
    counts = {
        name: function.instruction_count
        for name, function in text.functions.items()
        if function.linkage != "available_externally"
        and function.instruction_count >= request["minimum_instructions"]
    }
    functions, payload = [], bytearray()
    for name, assembly in function_texts(text, counts):
        bitcode = binding.assemble(assembly)
        payload += bitcode
        functions.append([name_in_assembly(name), counts[name], len(bitcode)])
    return {"opt_level": level, "functions": functions}, bytes(payload)


INQUIRIES: Final[Mapping[str, Callable[[dict[str, Any], bytes], _Answer]]] = {
    "describe": _describe,
    "split_functions": _split_functions,
}
"""By the request's ``op``."""

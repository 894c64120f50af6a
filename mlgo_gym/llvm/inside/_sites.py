"""Ids of a module's calls, carried in debug locations, which change no code.

Before a module is optimised each of its calls is given a number of its own as the line of its debug
location; all other instructions have line 0. LLVM keeps that through whatever it does: a call that
was inlined knows through which calls it came (``inlinedAt``), and where LLVM merges two it says 0.
What debug information the module had tells where its calls are in the source, and is taken out,
since there can be one location only.

The compile unit says that nothing is emitted (``DWARFEmissionNone``), and the object is the same,
byte for byte, as without; or that all is, and then its code is the same.

The calls are walked by LLVM's IR, as in `mlgo_gym.llvm.inside._call_site`; functions are LLVM's
own (``llvm/include/llvm-c/Core.h``, ``llvm/include/llvm-c/DebugInfo.h``).
"""

from __future__ import annotations

import bisect
import ctypes
import json
from collections.abc import Mapping
from typing import Any, Final

_WALKED: Final = {
    "first_block": "LLVMGetFirstBasicBlock",
    "next_block": "LLVMGetNextBasicBlock",
    "first_instruction": "LLVMGetFirstInstruction",
    "next_instruction": "LLVMGetNextInstruction",
    "as_call": "LLVMIsACallInst",
    "as_invoke": "LLVMIsAInvokeInst",
    "as_intrinsic": "LLVMIsAIntrinsicInst",
    "location": "LLVMInstructionGetDebugLoc",
    "set_location": "LLVMInstructionSetDebugLoc",
    "make_location": "LLVMDIBuilderCreateDebugLocation",
}
"""The code's name of each function, and its symbol, in the order of ``@mlgo_llvm``."""
_POINTER, _NUMBER, _SIZE, _TEXT = ctypes.c_void_p, ctypes.c_uint, ctypes.c_size_t, ctypes.c_char_p
_SIZED: Final = (_TEXT, _SIZE)
# fmt: off
_ASKED: Final[Mapping[str, tuple[Any, ...]]] = {
    "LLVMGetModuleContext": (_POINTER, _POINTER),
    "LLVMStripModuleDebugInfo": (_NUMBER, _POINTER),
    "LLVMGetModuleFlag": (_POINTER, _POINTER, *_SIZED),
    "LLVMAddModuleFlag": (None, _POINTER, _NUMBER, *_SIZED, _POINTER),
    "LLVMValueAsMetadata": (_POINTER, _POINTER),
    "LLVMConstInt": (_POINTER, _POINTER, ctypes.c_ulonglong, _NUMBER),
    "LLVMInt32TypeInContext": (_POINTER, _POINTER),
    "LLVMGetFirstFunction": (_POINTER, _POINTER),
    "LLVMGetNextFunction": (_POINTER, _POINTER),
    "LLVMGetFirstBasicBlock": (_POINTER, _POINTER),
    "LLVMGetValueName2": (_POINTER, _POINTER, ctypes.POINTER(_SIZE)),
    "LLVMSetSubprogram": (None, _POINTER, _POINTER),
    "LLVMCreateDIBuilderDisallowUnresolved": (_POINTER, _POINTER),
    "LLVMDIBuilderCreateFile": (_POINTER, _POINTER, *_SIZED, *_SIZED),
    "LLVMDIBuilderCreateCompileUnit": (
        _POINTER, _POINTER, _NUMBER, _POINTER, *_SIZED, _NUMBER, *_SIZED, _NUMBER, *_SIZED, _NUMBER,
        _NUMBER, _NUMBER, _NUMBER, *_SIZED, *_SIZED,
    ),
    "LLVMDIBuilderCreateSubroutineType": (
        _POINTER, _POINTER, _POINTER, _POINTER, _NUMBER, _NUMBER,
    ),
    "LLVMDIBuilderCreateFunction": (
        _POINTER, _POINTER, _POINTER, *_SIZED, *_SIZED, _POINTER, _NUMBER, _POINTER, _NUMBER,
        _NUMBER, _NUMBER, _NUMBER, _NUMBER,
    ),
    "LLVMDIBuilderFinalize": (None, _POINTER),
    "LLVMDisposeDIBuilder": (None, _POINTER),
    "LLVMInstructionGetDebugLoc": (_POINTER, _POINTER),
    "LLVMDILocationGetLine": (_NUMBER, _POINTER),
    "LLVMDILocationGetColumn": (_NUMBER, _POINTER),
    "LLVMDILocationGetScope": (_POINTER, _POINTER),
    "LLVMDILocationGetInlinedAt": (_POINTER, _POINTER),
    "LLVMDIScopeGetFile": (_POINTER, _POINTER),
    "LLVMDIFileGetFilename": (_POINTER, _POINTER, ctypes.POINTER(_NUMBER)),
}
"""The type that each function returns, and those of its arguments."""
# fmt: on
SYMBOLS: Final = tuple(dict.fromkeys((*_WALKED.values(), *_ASKED)))
"""The names of what has to be found in the library that holds LLVM."""
_C: Final = 1  # LLVMDWARFSourceLanguageC
_NOTHING_EMITTED, _ALL_EMITTED = 0, 1  # LLVMDWARFEmissionNone, LLVMDWARFEmissionFull
_WARNING: Final = 1  # LLVMModuleFlagBehaviorWarning
_VERSION: Final = (b"Debug Info Version", 3)

_CODE: Final = """
@mlgo_llvm = global [{walked} x ptr] zeroinitializer

define ptr @place_of_llvm() {{
  ret ptr @mlgo_llvm
}}

define private ptr @ask(i64 %which, ptr %of) {{
  %at = getelementptr ptr, ptr @mlgo_llvm, i64 %which
  %function = load ptr, ptr %at
  %value = call ptr %function(ptr %of)
  ret ptr %value
}}

define private void @locate(ptr %instruction, ptr %context, i32 %line, ptr %scope) {{
  %make_at = getelementptr ptr, ptr @mlgo_llvm, i64 {make_location}
  %make = load ptr, ptr %make_at
  %location = call ptr %make(ptr %context, i32 %line, i32 0, ptr %scope, ptr null)
  %set_at = getelementptr ptr, ptr @mlgo_llvm, i64 {set_location}
  %set = load ptr, ptr %set_at
  call void %set(ptr %instruction, ptr %location)
  ret void
}}

define private i1 @is_call(ptr %instruction) {{
  %call = call ptr @ask(i64 {as_call}, ptr %instruction)
  %invoke = call ptr @ask(i64 {as_invoke}, ptr %instruction)
  %intrinsic = call ptr @ask(i64 {as_intrinsic}, ptr %instruction)
  %is_call = icmp ne ptr %call, null
  %is_invoke = icmp ne ptr %invoke, null
  %is_function = icmp eq ptr %intrinsic, null
  %is_either = or i1 %is_call, %is_invoke
  %is_one = and i1 %is_either, %is_function
  ret i1 %is_one
}}

; Walks a function's calls, and returns the id behind its last one's. Without a scope it finds them:
; their locations are put into places, if there are any. Otherwise all instructions are located.
define i32 @mlgo_walk(ptr %function, i32 %id, ptr %places, ptr %context, ptr %scope) {{
  %finds = icmp eq ptr %scope, null
  %puts = icmp ne ptr %places, null
  %first_block = call ptr @ask(i64 {first_block}, ptr %function)
  br label %blocks
blocks:
  %block = phi ptr [ %first_block, %0 ], [ %next_block, %block_end ]
  %block_id = phi i32 [ %id, %0 ], [ %at_id, %block_end ]
  %is_end = icmp eq ptr %block, null
  br i1 %is_end, label %end, label %enter
enter:
  %first = call ptr @ask(i64 {first_instruction}, ptr %block)
  br label %instructions
instructions:
  %instruction = phi ptr [ %first, %enter ], [ %next, %done ]
  %at_id = phi i32 [ %block_id, %enter ], [ %next_id, %done ]
  %is_block_end = icmp eq ptr %instruction, null
  br i1 %is_block_end, label %block_end, label %look
look:
  %is_call = call i1 @is_call(ptr %instruction)
  %step = zext i1 %is_call to i32
  %next_id = add i32 %at_id, %step
  br i1 %finds, label %find, label %mark
find:
  %is_put = and i1 %is_call, %puts
  br i1 %is_put, label %put, label %done
put:
  %location = call ptr @ask(i64 {location}, ptr %instruction)
  %index = zext i32 %at_id to i64
  %place = getelementptr ptr, ptr %places, i64 %index
  store ptr %location, ptr %place
  br label %done
mark:
  %line = select i1 %is_call, i32 %at_id, i32 0
  call void @locate(ptr %instruction, ptr %context, i32 %line, ptr %scope)
  br label %done
done:
  %next = call ptr @ask(i64 {next_instruction}, ptr %instruction)
  br label %instructions
block_end:
  %next_block = call ptr @ask(i64 {next_block}, ptr %block)
  br label %blocks
end:
  ret i32 %block_id
}}
"""
_CALLER: Final = """
declare i32 @mlgo_walk(ptr, i32, ptr, ptr, ptr)
define i32 @call_it(ptr %function) {
  %found = call i32 @mlgo_walk(ptr %function, i32 1, ptr null, ptr null, ptr null)
  ret i32 %found
}
"""


def code() -> str:
    """The IR that walks calls."""
    numbers = {name: number for number, name in enumerate(_WALKED)}
    return _CODE.format(walked=len(_WALKED), **numbers)


class Sites:
    """Marks the calls of modules, and says where a call is that LLVM asks about.

    Args:
        addresses: of `SYMBOLS`, in this process.
    """

    def __init__(self, addresses: Mapping[str, int]) -> None:
        from mlgo_gym.llvm.worker import _binding as binding  # noqa: PLC0415 - loads LLVM

        text = code()
        self._code = binding.LoadedCode(binding.compile_native(text, None).data, _CALLER)
        place = ctypes.CFUNCTYPE(_SIZE)(self._code.address("place_of_llvm"))()
        table = (_SIZE * len(_WALKED)).from_address(place)
        table[:] = [addresses[name] for name in _WALKED.values()]
        self._walk = ctypes.CFUNCTYPE(_NUMBER, _POINTER, _NUMBER, *[_POINTER] * 3)(
            self._code.address("mlgo_walk")
        )
        self._llvm = {
            name: ctypes.CFUNCTYPE(*kinds)(addresses[name]) for name, kinds in _ASKED.items()
        }
        self._functions: list[tuple[int, str]] = []
        self._places: Any = ()
        self._told: dict[int, str] = {}

    def mark(self, module: int, *, debug_info: bool) -> None:
        """Number the calls of a module, by the address of LLVM's ``Module``, from 1."""
        llvm = self._llvm
        functions = self._find(module)
        llvm["LLVMStripModuleDebugInfo"](module)
        context = llvm["LLVMGetModuleContext"](module)
        flag, value = _VERSION
        if not llvm["LLVMGetModuleFlag"](module, flag, len(flag)):
            number = llvm["LLVMConstInt"](llvm["LLVMInt32TypeInContext"](context), value, 0)
            known = llvm["LLVMValueAsMetadata"](number)
            llvm["LLVMAddModuleFlag"](module, _WARNING, flag, len(flag), known)
        builder = llvm["LLVMCreateDIBuilderDisallowUnresolved"](module)
        file = llvm["LLVMDIBuilderCreateFile"](builder, b"calls", 5, b"", 0)
        kind = _ALL_EMITTED if debug_info else _NOTHING_EMITTED
        llvm["LLVMDIBuilderCreateCompileUnit"](
            *(builder, _C, file, b"", 0, 1, b"", 0, 0, b"", 0, kind, 0, 1, 0, b"", 0, b"", 0)
        )
        signature = llvm["LLVMDIBuilderCreateSubroutineType"](builder, file, None, 0, 0)
        create = llvm["LLVMDIBuilderCreateFunction"]
        for function, name, first in functions:
            names = (name, len(name)) * 2
            scope = create(builder, file, *names, file, 0, signature, 0, 1, 0, 0, 1)
            llvm["LLVMSetSubprogram"](function, scope)
            self._walk(function, first, None, context, scope)
        llvm["LLVMDIBuilderFinalize"](builder)
        llvm["LLVMDisposeDIBuilder"](builder)

    def _find(self, module: int) -> list[tuple[int, bytes, int]]:
        """Functions with their names and the ids of their first calls; keeps what tells of ids."""
        self._told.clear()
        found, function, after = [], self._llvm["LLVMGetFirstFunction"](module), 1
        while function:
            if self._llvm["LLVMGetFirstBasicBlock"](function):
                first, after = after, self._walk(function, after, None, None, None)
                size = _SIZE()
                name = self._llvm["LLVMGetValueName2"](function, ctypes.byref(size))
                found.append((function, ctypes.string_at(name, size.value), first))
            function = self._llvm["LLVMGetNextFunction"](function)
        self._places = (_SIZE * after)()
        for function, _, first in found:
            self._walk(function, first, ctypes.addressof(self._places), None, None)
        self._functions = [(first, _text(name.removeprefix(b"\1"))) for _, name, first in found]
        return found

    def site(self, call: int) -> str:
        """Through which calls a call came, by the address of its instruction, as JSON.

        The innermost first, each as its id, function, number in that function, file, line, column.
        Of a call that LLVM has made or merged there is none.
        """
        calls = []
        location = self._llvm["LLVMInstructionGetDebugLoc"](call)
        while location:
            line = self._llvm["LLVMDILocationGetLine"](location)
            if not line:
                return "[]"
            calls.append(self._told.get(line) or self._tell(line))
            location = self._llvm["LLVMDILocationGetInlinedAt"](location)
        return f"[{','.join(calls)}]"

    def _tell(self, identity: int) -> str:
        index = bisect.bisect(self._functions, identity, key=lambda each: each[0]) - 1
        first, function = self._functions[index]
        file, line, column = "", 0, 0
        if location := self._places[identity]:
            line = self._llvm["LLVMDILocationGetLine"](location)
            column = self._llvm["LLVMDILocationGetColumn"](location)
            file = self._file(self._llvm["LLVMDILocationGetScope"](location))
        call = identity, function, identity - first, file, line, column
        self._told[identity] = json.dumps(call)
        return self._told[identity]

    def _file(self, scope: int) -> str:
        size = _NUMBER()
        file = self._llvm["LLVMDIScopeGetFile"](scope)
        name = self._llvm["LLVMDIFileGetFilename"](file, ctypes.byref(size)) if file else None
        return _text(ctypes.string_at(name, size.value)) if name else ""


def _text(name: bytes) -> str:
    return name.decode("utf-8", "backslashreplace")

"""Features of the call that LLVM's inline advisor asks about, read from its module.

The advisor asks its model in one place, ``MLInlineAdvisor::getAdviceFromModel``
(``llvm/lib/Analysis/MLInlineAdvisor.cpp``), a virtual function that is given the call. It is called
by way of the class's table, so code that takes its place there, and then goes on to it, knows which
call is asked about while LLVM writes its question. That code counts `FEATURES` by LLVM's own
functions (``llvm/include/llvm-c/Core.h``), in the module as it is at this moment.

The code is LLVM's IR, so that a worker needs no C compiler: it is compiled by the LLVM that calls
it. Where LLVM's functions are, the caller says (`CALL_SITE_SYMBOLS`).
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final

from mlgo_gym.llvm.inside import _hotness
from mlgo_gym.llvm.inside._library import slot_of
from mlgo_gym.problems import CALL_FEATURES

FEATURES: Final = tuple(CALL_FEATURES["derived"])
"""The names, in the order in which `int64_t` values are written."""
_TABLE: Final = "_ZTVN4llvm15MLInlineAdvisorE"
_ASKS: Final = (
    "_ZN4llvm15MLInlineAdvisor18getAdviceFromModelERNS_8CallBaseERNS_25OptimizationRemarkEmitterE"
)
_COUNTED: Final = {
    "called_value": "LLVMGetCalledValue",
    "block_of": "LLVMGetInstructionParent",
    "function_of": "LLVMGetBasicBlockParent",
    "linkage": "LLVMGetLinkage",
    "visibility": "LLVMGetVisibility",
    "first_use": "LLVMGetFirstUse",
    "next_use": "LLVMGetNextUse",
    "user": "LLVMGetUser",
    "as_call": "LLVMIsACallInst",
    "as_invoke": "LLVMIsAInvokeInst",
    "instruction_count": "_ZNK4llvm8Function19getInstructionCountEv",
    "value_name": "LLVMGetValueName2",
}
"""The code's name of each function, and its symbol."""
_FUNCTIONS: Final = {**_COUNTED, **_hotness.FUNCTIONS}
"""Likewise with those of hotness, in the order of ``@mlgo_llvm``."""
CALL_SITE_WRITERS: Final[Mapping[tuple[str, ...], str]] = {
    FEATURES: "mlgo_put_features",
    _hotness.HOTNESS_FEATURES: "mlgo_put_hotness",
}
"""Groups of features that are told together, and the code's function that writes each group."""
_NUMBERS: Final = {
    name: number for names in (_FUNCTIONS, *CALL_SITE_WRITERS) for number, name in enumerate(names)
}
"""The place of each function in ``@mlgo_llvm``, and of each feature among its group's values."""
SYMBOLS: Final = (_TABLE, _ASKS, *_COUNTED.values())
"""The names of what tells of calls, in the library that holds LLVM."""
CALL_SITE_SYMBOLS: Final = (_TABLE, _ASKS, *_FUNCTIONS.values())
"""The same, with what tells how hot they are: all that `call_site_code` needs, in its order."""
_SLOTS: Final = 24
"""How many functions of the class's table are looked at; it has fewer."""
_MOST_CALLERS: Final = 64

CODE: Final = """
@mlgo_call = {storage}global ptr null
@mlgo_advisor = {storage}global ptr null
@mlgo_asks = global ptr null
@mlgo_llvm = global [{called} x ptr] zeroinitializer

; std::unique_ptr<MLInlineAdvice> getAdviceFromModel(CallBase &, OptimizationRemarkEmitter &)
define void @mlgo_take_call(ptr sret(ptr) %advice, ptr %advisor, ptr %call, ptr %emitter) {{
  store ptr %call, ptr @mlgo_call
  store ptr %advisor, ptr @mlgo_advisor
  %asks = load ptr, ptr @mlgo_asks
  call void %asks(ptr sret(ptr) %advice, ptr %advisor, ptr %call, ptr %emitter)
  store ptr null, ptr @mlgo_call
  ret void
}}

define private ptr @ask(i64 %which, ptr %of) {{
  %at = getelementptr ptr, ptr @mlgo_llvm, i64 %which
  %function = load ptr, ptr %at
  %value = call ptr %function(ptr %of)
  ret ptr %value
}}

define private i32 @number(i64 %which, ptr %of) {{
  %at = getelementptr ptr, ptr @mlgo_llvm, i64 %which
  %function = load ptr, ptr %at
  %value = call i32 %function(ptr %of)
  ret i32 %value
}}

define private void @put(ptr %values, i64 %which, i64 %value) {{
  %at = getelementptr i64, ptr %values, i64 %which
  store i64 %value, ptr %at, align 1
  ret void
}}

define private ptr @caller_of(ptr %call) {{
  %block = call ptr @ask(i64 {block_of}, ptr %call)
  %caller = call ptr @ask(i64 {function_of}, ptr %block)
  ret ptr %caller
}}

; Whether a user of the callee is a call of it.
define private i1 @is_call_of(ptr %user, ptr %callee) {{
  %as_call = call ptr @ask(i64 {as_call}, ptr %user)
  %is_call = icmp ne ptr %as_call, null
  br i1 %is_call, label %compare, label %other
other:
  %as_invoke = call ptr @ask(i64 {as_invoke}, ptr %user)
  %is_invoke = icmp ne ptr %as_invoke, null
  br i1 %is_invoke, label %compare, label %no
compare:
  %called = call ptr @ask(i64 {called_value}, ptr %user)
  %is_same = icmp eq ptr %called, %callee
  ret i1 %is_same
no:
  ret i1 false
}}

; Adds a caller to those that are known; whether it is new, and how many there are then.
define private i64 @with_caller(ptr %callers, i64 %count, ptr %caller) {{
  br label %loop
loop:
  %index = phi i64 [ 0, %0 ], [ %next, %each ]
  %is_end = icmp eq i64 %index, %count
  br i1 %is_end, label %new, label %each
each:
  %at = getelementptr ptr, ptr %callers, i64 %index
  %known = load ptr, ptr %at
  %next = add i64 %index, 1
  %is_known = icmp eq ptr %known, %caller
  br i1 %is_known, label %old, label %loop
old:
  ret i64 %count
new:
  %is_full = icmp eq i64 %count, {most_callers}
  br i1 %is_full, label %old, label %add
add:
  %last = getelementptr ptr, ptr %callers, i64 %count
  store ptr %caller, ptr %last
  %more = add i64 %count, 1
  ret i64 %more
}}

define private void @put_uses(ptr %values, ptr %callee) {{
  %known = alloca [{most_callers} x ptr]
  %first = call ptr @ask(i64 {first_use}, ptr %callee)
  br label %loop
loop:
  %use = phi ptr [ %first, %0 ], [ %following, %done ]
  %calls = phi i64 [ 0, %0 ], [ %calls_then, %done ]
  %callers = phi i64 [ 0, %0 ], [ %callers_then, %done ]
  %others = phi i64 [ 0, %0 ], [ %others_then, %done ]
  %is_end = icmp eq ptr %use, null
  br i1 %is_end, label %end, label %each
each:
  %user = call ptr @ask(i64 {user}, ptr %use)
  %is_call = call i1 @is_call_of(ptr %user, ptr %callee)
  br i1 %is_call, label %called, label %used
called:
  %calls_more = add i64 %calls, 1
  %caller = call ptr @caller_of(ptr %user)
  %callers_more = call i64 @with_caller(ptr %known, i64 %callers, ptr %caller)
  br label %done
used:
  %others_more = add i64 %others, 1
  br label %done
done:
  %calls_then = phi i64 [ %calls_more, %called ], [ %calls, %used ]
  %callers_then = phi i64 [ %callers_more, %called ], [ %callers, %used ]
  %others_then = phi i64 [ %others, %called ], [ %others_more, %used ]
  %following = call ptr @ask(i64 {next_use}, ptr %use)
  br label %loop
end:
  call void @put(ptr %values, i64 {callee_call_sites}, i64 %calls)
  call void @put(ptr %values, i64 {callee_callers}, i64 %callers)
  call void @put(ptr %values, i64 {callee_other_uses}, i64 %others)
  ret void
}}

; Writes what is named of the call that is asked about; whether one is.
define i32 @mlgo_put_features(ptr %values) {{
  %call = load ptr, ptr @mlgo_call
  %is_asked = icmp ne ptr %call, null
  br i1 %is_asked, label %asked, label %none
none:
  ret i32 0
asked:
  %callee = call ptr @ask(i64 {called_value}, ptr %call)
  %linkage = call i32 @number(i64 {linkage}, ptr %callee)
  ; LLVMInternalLinkage, LLVMPrivateLinkage
  %from_internal = sub i32 %linkage, 8
  %is_local = icmp ult i32 %from_internal, 2
  %local = zext i1 %is_local to i64
  call void @put(ptr %values, i64 {callee_is_local}, i64 %local)
  ; LLVMLinkOnceAnyLinkage to LLVMWeakODRLinkage
  %from_once = sub i32 %linkage, 2
  %is_shared = icmp ult i32 %from_once, 5
  %shared = zext i1 %is_shared to i64
  call void @put(ptr %values, i64 {callee_is_shared}, i64 %shared)
  %visibility = call i32 @number(i64 {visibility}, ptr %callee)
  ; LLVMHiddenVisibility
  %is_hidden = icmp eq i32 %visibility, 1
  %hidden = zext i1 %is_hidden to i64
  call void @put(ptr %values, i64 {callee_is_hidden}, i64 %hidden)
  call void @put_uses(ptr %values, ptr %callee)
  %callee_size = call i32 @number(i64 {instruction_count}, ptr %callee)
  %callee_wide = zext i32 %callee_size to i64
  call void @put(ptr %values, i64 {callee_instruction_count}, i64 %callee_wide)
  %caller = call ptr @caller_of(ptr %call)
  %caller_size = call i32 @number(i64 {instruction_count}, ptr %caller)
  %caller_wide = zext i32 %caller_size to i64
  call void @put(ptr %values, i64 {caller_instruction_count}, i64 %caller_wide)
  ret i32 1
}}

define private void @put_name(ptr %values, i64 %which, ptr %of) {{
  %at = getelementptr ptr, ptr @mlgo_llvm, i64 {value_name}
  %function = load ptr, ptr %at
  %name_at = getelementptr i64, ptr %values, i64 %which
  %size_at = getelementptr i64, ptr %name_at, i64 1
  %name = call ptr %function(ptr %of, ptr %size_at)
  store ptr %name, ptr %name_at
  ret void
}}

; Writes where the names of caller and callee are, and their sizes; whether a call is asked about.
define i32 @mlgo_put_names(ptr %values) {{
  %call = load ptr, ptr @mlgo_call
  %is_asked = icmp ne ptr %call, null
  br i1 %is_asked, label %asked, label %none
none:
  ret i32 0
asked:
  %caller = call ptr @caller_of(ptr %call)
  call void @put_name(ptr %values, i64 0, ptr %caller)
  %callee = call ptr @ask(i64 {called_value}, ptr %call)
  call void @put_name(ptr %values, i64 2, ptr %callee)
  ret i32 1
}}
"""
_PLACES: Final = """
define ptr @place_of_llvm() {
  ret ptr @mlgo_llvm
}
define ptr @place_of_asks() {
  ret ptr @mlgo_asks
}
define ptr @place_of_call() {
  ret ptr @mlgo_call
}
"""
_CALLER: Final = """
declare i32 @mlgo_put_features(ptr)
define i32 @call_it(ptr %values) {
  %found = call i32 @mlgo_put_features(ptr %values)
  ret i32 %found
}
"""


def call_site_code(*, has_threads: bool) -> str:
    """The IR: for one thread, or for as many as LLVM is used by."""
    storage = "thread_local " if has_threads else ""
    called = CODE.format(
        storage=storage, called=len(_FUNCTIONS), most_callers=_MOST_CALLERS, **_NUMBERS
    )
    return called + _hotness.code(_NUMBERS)


def call_site_groups(names: Collection[str]) -> list[tuple[str, ...]]:
    """Return the groups of `CALL_SITE_WRITERS` that some of these features belong to."""
    return [group for group in CALL_SITE_WRITERS if {*group} & {*names}]


def slot_in(addresses: Mapping[str, int]) -> int:
    """Return the address of the slot that is written to.

    Raises:
        EnvironmentSetupError: the table is another LLVM's.
    """
    return slot_of(addresses[_TABLE], _SLOTS, addresses[_ASKS], _ASKS)


class CallSite:
    """Knows the call that LLVM asks about, from now on for the process's life.

    Args:
        addresses: of `CALL_SITE_SYMBOLS`, in this process.
        put: writes an address to a place, which may be read-only.
    """

    def __init__(self, addresses: Mapping[str, int], put: Callable[[int, int], None]) -> None:
        from mlgo_gym.llvm.worker import _binding as binding  # noqa: PLC0415 - loads LLVM

        text = call_site_code(has_threads=False) + _PLACES
        self._code = binding.LoadedCode(binding.compile_native(text, None).data, _CALLER)
        places = (ctypes.c_size_t * len(_FUNCTIONS)).from_address(self._place("place_of_llvm"))
        places[:] = [addresses.get(name, 0) for name in _FUNCTIONS.values()]
        ctypes.c_size_t.from_address(self._place("place_of_asks")).value = addresses[_ASKS]
        self._call = ctypes.c_size_t.from_address(self._place("place_of_call"))
        self._values: Mapping[tuple[str, ...], Any] = {
            group: (ctypes.c_int64 * len(group))() for group in CALL_SITE_WRITERS
        }
        self._names = (ctypes.c_size_t * 4)()
        self._put = {group: self._putting(name) for group, name in CALL_SITE_WRITERS.items()}
        self._put_names = self._putting("mlgo_put_names")
        put(slot_in(addresses), self._code.address("mlgo_take_call"))

    @property
    def call(self) -> int:
        """The address of the instruction that LLVM asks about; 0 where it asks about none."""
        return self._call.value

    def features(self, groups: Sequence[tuple[str, ...]] = (FEATURES,)) -> bytes:
        """The values of some groups for the call that is asked about; 0 where none is."""
        found = b""
        for group in groups:
            values = self._values[group]
            is_asked = self._put[group](ctypes.addressof(values))
            found += bytes(values) if is_asked else bytes(ctypes.sizeof(values))
        return found

    def names(self) -> str | None:
        """Caller and callee, with a NUL between them; ``None`` where LLVM asks about no call.

        They are symbols, without the byte by which LLVM marks what it may not change.
        """
        if not self._put_names(ctypes.addressof(self._names)):
            return None
        caller, caller_bytes, callee, callee_bytes = self._names
        names = ctypes.string_at(caller, caller_bytes), ctypes.string_at(callee, callee_bytes)
        text = b"\0".join(name.removeprefix(b"\1") for name in names)
        return text.decode("utf-8", "backslashreplace")

    def _putting(self, name: str) -> Callable[[int], int]:
        return ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(self._code.address(name))

    def _place(self, name: str) -> int:
        return int(ctypes.CFUNCTYPE(ctypes.c_size_t)(self._code.address(name))())

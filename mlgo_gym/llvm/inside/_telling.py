"""Contexts that say which call LLVM asks about, written without Python.

LLVM writes an observation to its channel; before it goes a line with the names of caller and callee
and, where sites are told, through which calls the call came. `mlgo_gym.llvm.worker._besides` can
write that, too, and does whatever is not done here: headers, and contexts of names that JSON has no
plain form of or of calls that nobody has described yet. What both write is the same, byte for byte.

The code is LLVM's IR; it needs that of `mlgo_gym.llvm.inside._call_site`.
"""

from __future__ import annotations

import ctypes
import json
from collections.abc import Mapping
from typing import Any, Final

_DEBUG: Final = {
    "get_location": "LLVMInstructionGetDebugLoc",
    "get_line": "LLVMDILocationGetLine",
    "get_outer": "LLVMDILocationGetInlinedAt",
}
"""The code's name of each function, and its symbol, in the order of ``@mlgo_debug``."""
SYMBOLS: Final = tuple(_DEBUG.values())
"""The names of what has to be found in the library that holds LLVM, besides that of calls."""

OBSERVATION: Final = b'{"observation":'
"""How LLVM begins an observation."""

NAMES, SITES = 2, 3
"""The text of a context: as an interposed descriptor is marked."""

_PIECES: Final = {"begin": '{"context":"', "nul": "\\u0000", "end": '"}\n', "open": "[",
                  "close": "]", "comma": ",", "none": "[]"}  # fmt: skip
CODE: Final = """
@mlgo_debug = global [{debug_count} x ptr] zeroinitializer
@mlgo_told = global ptr null
@mlgo_told_count = global i32 0
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)

define ptr @place_of_debug() {{
  ret ptr @mlgo_debug
}}
define ptr @place_of_told() {{
  ret ptr @mlgo_told
}}
define ptr @place_of_told_count() {{
  ret ptr @mlgo_told_count
}}

; Appends bytes; returns how many there are then, or -1 where there is no room, or was none before.
define private i64 @append(ptr %to, i64 %room, i64 %at, ptr %from, i64 %size) {{
  %is_over = icmp slt i64 %at, 0
  %end = add i64 %at, %size
  %is_full = icmp sgt i64 %end, %room
  %is_no = or i1 %is_over, %is_full
  br i1 %is_no, label %no, label %copy
no:
  ret i64 -1
copy:
  %place = getelementptr i8, ptr %to, i64 %at
  call void @llvm.memcpy.p0.p0.i64(ptr %place, ptr %from, i64 %size, i1 false)
  ret i64 %end
}}

; Appends a function's symbol, without LLVM's mark, if JSON has it as it is.
define private i64 @append_name(ptr %to, i64 %room, i64 %at, ptr %of) {{
  %size_at = alloca i64
  %name_at = getelementptr ptr, ptr @mlgo_llvm, i64 {value_name}
  %get_name = load ptr, ptr %name_at
  %name = call ptr %get_name(ptr %of, ptr %size_at)
  %size = load i64, ptr %size_at
  %is_empty = icmp eq i64 %size, 0
  br i1 %is_empty, label %no, label %first
first:
  %mark = load i8, ptr %name
  %is_marked = icmp eq i8 %mark, 1
  %start = zext i1 %is_marked to i64
  br label %loop
loop:
  %index = phi i64 [ %start, %first ], [ %next, %look ]
  %is_end = icmp eq i64 %index, %size
  br i1 %is_end, label %put, label %look
look:
  %byte_at = getelementptr i8, ptr %name, i64 %index
  %byte = load i8, ptr %byte_at
  %from_space = sub i8 %byte, 32
  %is_other = icmp ugt i8 %from_space, 94
  %is_quote = icmp eq i8 %byte, 34
  %is_slash = icmp eq i8 %byte, 92
  %is_special = or i1 %is_quote, %is_slash
  %is_not_plain = or i1 %is_other, %is_special
  %next = add i64 %index, 1
  br i1 %is_not_plain, label %no, label %loop
put:
  %from = getelementptr i8, ptr %name, i64 %start
  %rest = sub i64 %size, %start
  %end = call i64 @append(ptr %to, i64 %room, i64 %at, ptr %from, i64 %rest)
  ret i64 %end
no:
  ret i64 -1
}}

; Appends what is told of the calls that a call came through, if all of them are described.
define private i64 @append_calls(ptr %to, i64 %room, i64 %at, ptr %call) {{
  %get_line_at = getelementptr ptr, ptr @mlgo_debug, i64 {get_line}
  %get_line = load ptr, ptr %get_line_at
  %get_outer_at = getelementptr ptr, ptr @mlgo_debug, i64 {get_outer}
  %get_outer = load ptr, ptr %get_outer_at
  %get_location_at = getelementptr ptr, ptr @mlgo_debug, i64 {get_location}
  %get_location = load ptr, ptr %get_location_at
  %first = call ptr %get_location(ptr %call)
  %told = load ptr, ptr @mlgo_told
  %count = load i32, ptr @mlgo_told_count
  %opened = call i64 @append(ptr %to, i64 %room, i64 %at, ptr @open, i64 1)
  br label %loop
loop:
  %location = phi ptr [ %first, %0 ], [ %outer, %add ]
  %so_far = phi i64 [ %opened, %0 ], [ %then, %add ]
  %is_end = icmp eq ptr %location, null
  br i1 %is_end, label %end, label %each
each:
  %line = call i32 %get_line(ptr %location)
  %is_shared = icmp eq i32 %line, 0
  br i1 %is_shared, label %shared, label %known
shared:
  %none = call i64 @append(ptr %to, i64 %room, i64 %at, ptr @none, i64 2)
  ret i64 %none
known:
  %is_known = icmp ult i32 %line, %count
  br i1 %is_known, label %find, label %no
find:
  %number = zext i32 %line to i64
  %entry = getelementptr {{ ptr, i64 }}, ptr %told, i64 %number
  %text = load ptr, ptr %entry
  %is_told = icmp ne ptr %text, null
  br i1 %is_told, label %separate, label %no
separate:
  %is_first = icmp eq i64 %so_far, %opened
  %comma_size = select i1 %is_first, i64 0, i64 1
  %separated = call i64 @append(ptr %to, i64 %room, i64 %so_far, ptr @comma, i64 %comma_size)
  br label %add
add:
  %size_at = getelementptr {{ ptr, i64 }}, ptr %entry, i64 0, i32 1
  %size = load i64, ptr %size_at
  %then = call i64 @append(ptr %to, i64 %room, i64 %separated, ptr %text, i64 %size)
  %outer = call ptr %get_outer(ptr %location)
  br label %loop
end:
  %closed = call i64 @append(ptr %to, i64 %room, i64 %so_far, ptr @close, i64 1)
  ret i64 %closed
no:
  ret i64 -1
}}

; Writes the line of a context of the kind; returns its size, or -1 where it is Python's to do.
define i64 @mlgo_put_context(ptr %to, i64 %room, i32 %kind) {{
  %call = load ptr, ptr @mlgo_call
  %is_none = icmp eq ptr %call, null
  br i1 %is_none, label %no, label %asked
no:
  ret i64 -1
asked:
  %caller = call ptr @caller_of(ptr %call)
  %callee = call ptr @ask(i64 {called_value}, ptr %call)
  %begun = call i64 @append(ptr %to, i64 %room, i64 0, ptr @begin, i64 12)
  %called = call i64 @append_name(ptr %to, i64 %room, i64 %begun, ptr %caller)
  %between = call i64 @append(ptr %to, i64 %room, i64 %called, ptr @nul, i64 6)
  %named = call i64 @append_name(ptr %to, i64 %room, i64 %between, ptr %callee)
  %has_calls = icmp eq i32 %kind, {sites}
  br i1 %has_calls, label %calls, label %end
calls:
  %behind = call i64 @append(ptr %to, i64 %room, i64 %named, ptr @nul, i64 6)
  %sited = call i64 @append_calls(ptr %to, i64 %room, i64 %behind, ptr %call)
  br label %end
end:
  %so_far = phi i64 [ %named, %asked ], [ %sited, %calls ]
  %all = call i64 @append(ptr %to, i64 %room, i64 %so_far, ptr @end, i64 3)
  ret i64 %all
}}
"""


def code(numbers: Mapping[str, int]) -> str:
    """The IR, behind that of calls, by the places of functions in ``@mlgo_llvm``."""
    pieces = (
        f'@{name} = private constant [{len(text)} x i8] c"'
        + "".join(f"\\{byte:02x}" for byte in text.encode())
        + '"'
        for name, text in _PIECES.items()
    )
    debug = {name: number for number, name in enumerate(_DEBUG)}
    return "\n".join(
        [*pieces, CODE.format(sites=SITES, debug_count=len(_DEBUG), **debug, **numbers)]
    )


class _Entry(ctypes.Structure):
    _fields_ = (("text", ctypes.c_char_p), ("size", ctypes.c_size_t))


class Told:
    """Descriptions of calls by their ids, where native code finds them.

    Args:
        place: where the address of the table is kept.
        count_place: where it is kept how many there may be.
    """

    def __init__(self, place: int, count_place: int) -> None:
        self._place = ctypes.c_size_t.from_address(place)
        self._count = ctypes.c_uint.from_address(count_place)
        self._entries: Any = ()

    def clear(self, count: int) -> None:
        """Nothing is described, of so many calls and one."""
        self._count.value = 0
        self._entries = (_Entry * count)()
        self._place.value = ctypes.addressof(self._entries)
        self._count.value = count

    def tell(self, identity: int, text: str) -> None:
        """Set the description of a call: JSON, which becomes part of a text in JSON."""
        data = json.dumps(text)[1:-1].encode()
        self._entries[identity] = _Entry(data, len(data))

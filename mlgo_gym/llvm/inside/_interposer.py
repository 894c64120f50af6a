"""Interposition of LLVM's calls of ``open``, ``read`` and ``write`` in this process.

llvmlite's library calls libc through addresses that the dynamic linker has put into a table. The
three of them that LLVM speaks to its channel with are replaced, so that questions are answered
where they are asked (`llvm.worker._inside`): no pipe, no other process. What replaces them is
compiled by the LLVM that calls it; no C compiler is needed. It hands on what is not a channel's
without Python, since LLVM also writes when it is out of memory or about to abort.
"""

from __future__ import annotations

import ctypes
import struct
import sys
from collections.abc import Callable, Iterator
from typing import Any, Final

from mlgo_gym.llvm.inside._library import link_map, put
from mlgo_gym.llvm.inside._telling import OBSERVATION
from mlgo_gym.llvm.worker import _binding as binding

MOST_DESCRIPTORS: Final = 1024
"""Those above are LLVM's own affair."""

_ROOM: Final = 1 << 16

_IR: Final = """
@marks = global [{most} x i8] zeroinitializer
@sizes = global [{most} x i64] zeroinitializer
@teller = global ptr null
@line = global [{room} x i8] zeroinitializer
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)

define private i8 @mark_of(i32 %file) {{
  %is_low = icmp ult i32 %file, {most}
  br i1 %is_low, label %low, label %high
low:
  %index = zext i32 %file to i64
  %at = getelementptr i8, ptr @marks, i64 %index
  %mark = load i8, ptr %at
  ret i8 %mark
high:
  ret i8 0
}}

define ptr @place_of_marks() {{
  ret ptr @marks
}}
define ptr @place_of_sizes() {{
  ret ptr @sizes
}}
define ptr @place_of_teller() {{
  ret ptr @teller
}}

; Whether a write is of one observation, whole: {{"observation":N}}, tensors, and the line's end.
define private i1 @is_observation(i32 %file, ptr %data, i64 %size) {{
  %is_short = icmp slt i64 %size, 32
  br i1 %is_short, label %no, label %begin
begin:
  %first = load i64, ptr %data, align 1
  %second_at = getelementptr i8, ptr %data, i64 7
  %second = load i64, ptr %second_at, align 1
  %is_first = icmp eq i64 %first, {first}
  %is_second = icmp eq i64 %second, {second}
  %is_begun = and i1 %is_first, %is_second
  br i1 %is_begun, label %loop, label %no
loop:
  %index = phi i64 [ 15, %begin ], [ %next, %more ]
  %at = getelementptr i8, ptr %data, i64 %index
  %byte = load i8, ptr %at
  %next = add i64 %index, 1
  %is_line = icmp eq i8 %byte, 10
  br i1 %is_line, label %line, label %more
more:
  %is_long = icmp eq i64 %next, 32
  br i1 %is_long, label %no, label %loop
line:
  %number = zext i32 %file to i64
  %size_at = getelementptr i64, ptr @sizes, i64 %number
  %tensors = load i64, ptr %size_at
  %end = add i64 %next, %tensors
  %whole = add i64 %end, 1
  %is_whole = icmp eq i64 %whole, %size
  ret i1 %is_whole
no:
  ret i1 false
}}

; Writes an observation behind its context; returns the size, or -1 where it is not to be done here.
define private i64 @tell(i32 %file, ptr %data, i64 %size, i8 %mark) {{
  %is_one = call i1 @is_observation(i32 %file, ptr %data, i64 %size)
  br i1 %is_one, label %put, label %no
put:
  %put_context = load ptr, ptr @teller
  %kind = zext i8 %mark to i32
  %context = call i64 %put_context(ptr @line, i64 {room}, i32 %kind)
  %is_put = icmp sgt i64 %context, 0
  %all = add i64 %context, %size
  %is_room = icmp sle i64 %all, {room}
  %is_told = and i1 %is_put, %is_room
  br i1 %is_told, label %copy, label %no
copy:
  %behind = getelementptr i8, ptr @line, i64 %context
  call void @llvm.memcpy.p0.p0.i64(ptr %behind, ptr %data, i64 %size, i1 false)
  br label %loop
loop:
  %done = phi i64 [ 0, %copy ], [ %sum, %more ]
  %from = getelementptr i8, ptr @line, i64 %done
  %left = sub i64 %all, %done
  %written = call i64 inttoptr (i64 {real} to ptr)(i32 %file, ptr %from, i64 %left)
  %is_gone = icmp slt i64 %written, 0
  br i1 %is_gone, label %end, label %more
more:
  %sum = add i64 %done, %written
  %is_all = icmp eq i64 %sum, %all
  br i1 %is_all, label %end, label %loop
end:
  ret i64 %size
no:
  ret i64 -1
}}

define i64 @taking_write(i32 %file, ptr %data, i64 %size) {{
  %mark = call i8 @mark_of(i32 %file)
  switch i8 %mark, label %told [ i8 0, label %others
                                 i8 1, label %ours ]
told:
  %done = call i64 @tell(i32 %file, ptr %data, i64 %size, i8 %mark)
  %is_done = icmp sge i64 %done, 0
  br i1 %is_done, label %end, label %ours
end:
  ret i64 %done
ours:
  %taken = tail call i64 inttoptr (i64 {taking} to ptr)(i32 %file, ptr %data, i64 %size)
  ret i64 %taken
others:
  %real = tail call i64 inttoptr (i64 {real} to ptr)(i32 %file, ptr %data, i64 %size)
  ret i64 %real
}}
"""
_READ_IR: Final = """
define i64 @taking_read(i32 %file, ptr %data, i64 %size) {{
  %mark = call i8 @mark_of(i32 %file)
  %is_taken = icmp ne i8 %mark, 0
  br i1 %is_taken, label %ours, label %others
ours:
  %taken = tail call i64 inttoptr (i64 {taking} to ptr)(i32 %file, ptr %data, i64 %size)
  ret i64 %taken
others:
  %done = tail call i64 inttoptr (i64 {real} to ptr)(i32 %file, ptr %data, i64 %size)
  ret i64 %done
}}
"""
_CALLER: Final = """
declare ptr @place_of_marks()
define ptr @call_it() {
  %marks = call ptr @place_of_marks()
  ret ptr %marks
}
"""

_Open = Callable[[bytes, int, int], int]
_Transfer = Callable[[int, int, int], int]
_OPEN: Final = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_int, use_errno=True
)
_TRANSFER: Final = ctypes.CFUNCTYPE(
    ctypes.c_ssize_t, ctypes.c_int, ctypes.c_size_t, ctypes.c_size_t, use_errno=True
)
_OPENING: Final = ("open", "open64")
_TAKEN: Final = (*_OPENING, "read", "write")


class Interposer:
    """Takes LLVM's calls, once it is installed for the process's life; `can_interpose` comes first.

    ``on_open`` gets all of them: a path, flags and mode, and returns a descriptor, or -1 with
    ``errno``. The others get a descriptor that was marked (`mark`), an address and a size in bytes.
    """

    def __init__(self, on_open: _Open, on_read: _Transfer, on_write: _Transfer) -> None:
        self._slots = _slots()
        libc = ctypes.CDLL(None)
        real = {name: _address(getattr(libc, name)) for name in _TAKEN if hasattr(libc, name)}
        # LLVM has the addresses of these: they live as long as this does.
        self._callbacks = (_OPEN(on_open), _TRANSFER(on_read), _TRANSFER(on_write))
        opening, reading, writing = map(_address, self._callbacks)
        text = _IR.format(
            most=MOST_DESCRIPTORS,
            room=_ROOM,
            first=int.from_bytes(OBSERVATION[:8], sys.byteorder),
            second=int.from_bytes(OBSERVATION[-8:], sys.byteorder),
            taking=writing,
            real=real["write"],
        )
        text += _READ_IR.format(taking=reading, real=real["read"])
        self._code = binding.LoadedCode(binding.compile_native(text, None).data, _CALLER)
        marks = self._place("place_of_marks")
        self._marks = (ctypes.c_uint8 * MOST_DESCRIPTORS).from_address(marks)
        self._teller = ctypes.c_size_t.from_address(self._place("place_of_teller"))
        sizes = self._place("place_of_sizes")
        self._sizes = (ctypes.c_int64 * MOST_DESCRIPTORS).from_address(sizes)
        self._taking = dict.fromkeys(_OPENING, opening) | {
            "read": self._code.address("taking_read"),
            "write": self._code.address("taking_write"),
        }
        self.real_open: Final = _OPEN(real["open"])
        self.real_write: Final = _TRANSFER(real["write"])

    def install(self) -> None:
        """Take LLVM's calls from now on."""
        for name, slot in self._slots.items():
            put(slot, self._taking[name])

    def mark(self, descriptor: int, *, is_taken: bool, told: int = 0, size_bytes: int = 0) -> bool:
        """Say whether a descriptor's reads and writes are taken; false where it is too high.

        What is ``told`` (`mlgo_gym.llvm.inside._telling`) native code writes as the contexts of
        observations of this size, and what it cannot write is taken.
        """
        if descriptor < MOST_DESCRIPTORS:
            self._sizes[descriptor] = size_bytes
            self._marks[descriptor] = told or is_taken
        return descriptor < MOST_DESCRIPTORS

    def tell_by(self, teller: int) -> None:
        """Set the address of the code that writes contexts."""
        self._teller.value = teller

    def _place(self, name: str) -> int:
        return int(ctypes.CFUNCTYPE(ctypes.c_size_t)(self._code.address(name))())


def can_interpose() -> bool:
    """Whether llvmlite's library calls libc in a way that is known here: Linux's, by a table."""
    slots = _slots() if sys.platform == "linux" and ctypes.sizeof(ctypes.c_void_p) == 8 else {}
    return {"read", "write"} <= slots.keys() and any(name in slots for name in _OPENING)


def _address(function: Any) -> int:
    return int(ctypes.cast(function, ctypes.c_void_p).value or 0)


_STRINGS, _SYMBOLS, _RELOCATIONS, _RELOCATIONS_BYTES = 5, 6, 23, 2  # DT_*, of the procedure table
_TAG: Final = struct.Struct("=qQ")
_RELOCATION: Final = struct.Struct("=QQq")
_NAME: Final = struct.Struct("=I")
_SYMBOL_BYTES: Final = 24


def _slots() -> dict[str, int]:
    """The addresses of the addresses by which llvmlite's library calls these; what is found."""
    about = link_map()
    if about is None:
        return {}
    # glibc has put addresses in place of offsets, other C libraries leave those.
    tags = {
        tag: value + (about.base if value < about.base and tag != _RELOCATIONS_BYTES else 0)
        for tag, value in _tags(about.dynamic)
    }
    if not {_STRINGS, _SYMBOLS, _RELOCATIONS, _RELOCATIONS_BYTES} <= tags.keys():
        return {}
    table = ctypes.string_at(tags[_RELOCATIONS], tags[_RELOCATIONS_BYTES])
    slots = {}
    for offset, information, _ in _RELOCATION.iter_unpack(table):
        symbol = tags[_SYMBOLS] + _SYMBOL_BYTES * (information >> 32)
        (name,) = _NAME.unpack(ctypes.string_at(symbol, _NAME.size))
        slots[ctypes.string_at(tags[_STRINGS] + name)] = about.base + offset
    return {name: slots[name.encode()] for name in _TAKEN if name.encode() in slots}


def _tags(address: int) -> Iterator[tuple[int, int]]:
    """Yield the tags and values of a library's dynamic section."""
    while True:
        tag, value = _TAG.unpack(ctypes.string_at(address, _TAG.size))
        if tag == 0:
            return
        yield tag, value
        address += _TAG.size

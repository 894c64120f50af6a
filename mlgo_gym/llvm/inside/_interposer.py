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
from mlgo_gym.llvm.worker import _binding as binding

MOST_DESCRIPTORS: Final = 1024
"""Those above are LLVM's own affair."""

_IR: Final = """
@marks = global [{most} x i8] zeroinitializer

define private i1 @is_taken(i32 %file) {{
  %is_low = icmp ult i32 %file, {most}
  br i1 %is_low, label %low, label %high
low:
  %index = zext i32 %file to i64
  %at = getelementptr i8, ptr @marks, i64 %index
  %mark = load i8, ptr %at
  %is_marked = icmp ne i8 %mark, 0
  ret i1 %is_marked
high:
  ret i1 false
}}

define ptr @place_of_marks() {{
  ret ptr @marks
}}
"""
_TRANSFER_IR: Final = """
define i64 @taking_{name}(i32 %file, ptr %data, i64 %size) {{
  %is_taken = call i1 @is_taken(i32 %file)
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
        text = _IR.format(most=MOST_DESCRIPTORS)
        for name, taking in (("read", reading), ("write", writing)):
            text += _TRANSFER_IR.format(name=name, taking=taking, real=real[name])
        self._code = binding.LoadedCode(binding.compile_native(text, None).data, _CALLER)
        marks = ctypes.CFUNCTYPE(ctypes.c_size_t)(self._code.address("place_of_marks"))()
        self._marks = (ctypes.c_bool * MOST_DESCRIPTORS).from_address(marks)
        self._taking = dict.fromkeys(_OPENING, opening) | {
            "read": self._code.address("taking_read"),
            "write": self._code.address("taking_write"),
        }
        self.real_open: Final = _OPEN(real["open"])

    def install(self) -> None:
        """Take LLVM's calls from now on."""
        for name, slot in self._slots.items():
            put(slot, self._taking[name])

    def mark(self, descriptor: int, *, is_taken: bool) -> bool:
        """Say whether a descriptor's reads and writes are taken; false where it is too high."""
        if descriptor < MOST_DESCRIPTORS:
            self._marks[descriptor] = is_taken
        return descriptor < MOST_DESCRIPTORS


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

"""Which live range LLVM's eviction advisor asks about.

The advisor asks its model in ``MLEvictAdvisor::tryFindEvictionCandidate``
(``llvm/lib/CodeGen/MLRegAllocEvictAdvisor.cpp``), a virtual function that is given the live range
that wants a register. Its place in the class's table is taken as that of the inline advisor is
(`mlgo_gym.llvm.process._call_site`), by LLVM's IR. A live range is known by its virtual register, a
field of ``LiveInterval`` (``llvm/include/llvm/CodeGen/LiveInterval.h``).
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from typing import Final

FEATURE: Final = "live_range"
"""What it is called among what is sent."""

_TABLE: Final = "_ZTVN12_GLOBAL__N_114MLEvictAdvisorE"
_FINDS: Final = (
    "_ZNK12_GLOBAL__N_114MLEvictAdvisor24tryFindEvictionCandidateERKN4llvm12LiveInterval"
    "ERKNS1_15AllocationOrderEhRKNS1_8SmallSetINS1_8RegisterELj16ESt4lessIS9_EEE"
)
SYMBOLS: Final = (_TABLE, _FINDS)
"""The names of what has to be found in the library that holds LLVM."""

_SLOTS: Final = 16
_REGISTER_OFFSET: Final = 112
"""Behind two small vectors, of two segments and of two values, and two pointers."""
_IS_VIRTUAL: Final = 1 << 31
"""Marks registers that are no machine's (``llvm::Register``)."""

_CODE: Final = """
@mlgo_interval = global ptr null
@mlgo_finds = global ptr null

; MCRegister tryFindEvictionCandidate(const LiveInterval &, const AllocationOrder &, uint8_t,
;                                     const SmallVirtRegSet &) const
define i32 @mlgo_take_interval(ptr %advisor, ptr %interval, ptr %order, i8 zeroext %cost,
                               ptr %fixed) {
  store ptr %interval, ptr @mlgo_interval
  %finds = load ptr, ptr @mlgo_finds
  %register = call i32 %finds(ptr %advisor, ptr %interval, ptr %order, i8 zeroext %cost, ptr %fixed)
  store ptr null, ptr @mlgo_interval
  ret i32 %register
}
define ptr @place_of_interval() {
  ret ptr @mlgo_interval
}
define ptr @place_of_finds() {
  ret ptr @mlgo_finds
}
"""
_CALLER: Final = """
declare ptr @place_of_interval()
define ptr @call_it() {
  %place = call ptr @place_of_interval()
  ret ptr %place
}
"""


class LiveRanges:
    """Knows the live range that LLVM asks about, from now on for the process's life.

    Args:
        addresses: of `SYMBOLS`, in this process.
        put: writes an address to a place, which may be read-only.
    """

    def __init__(self, addresses: Mapping[str, int], put: Callable[[int, int], None]) -> None:
        from mlgo_gym.llvm.process import _binding as binding  # noqa: PLC0415 - loads LLVM

        self._code = binding.LoadedCode(binding.compile_native(_CODE, None).data, _CALLER)
        self._interval = ctypes.c_size_t.from_address(self._place("place_of_interval"))
        ctypes.c_size_t.from_address(self._place("place_of_finds")).value = addresses[_FINDS]
        table = (ctypes.c_size_t * _SLOTS).from_address(addresses[_TABLE])
        index = list(table).index(addresses[_FINDS])
        slot = addresses[_TABLE] + index * ctypes.sizeof(ctypes.c_size_t)
        put(slot, self._code.address("mlgo_take_interval"))

    def value(self) -> bytes:
        """The number of its virtual register, an ``int64_t``; -1 where it has none."""
        number = -1
        if interval := self._interval.value:
            register = ctypes.c_uint32.from_address(interval + _REGISTER_OFFSET).value
            number = register ^ _IS_VIRTUAL if register & _IS_VIRTUAL else -1
        return bytes(ctypes.c_int64(number))

    def _place(self, name: str) -> int:
        return int(ctypes.CFUNCTYPE(ctypes.c_size_t)(self._code.address(name))())

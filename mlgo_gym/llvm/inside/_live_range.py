"""The live range that LLVM's eviction advisor asks about, and functions left to LLVM.

The advisor asks its model in ``MLEvictAdvisor::tryFindEvictionCandidate``
(``llvm/lib/CodeGen/MLRegAllocEvictAdvisor.cpp``), a virtual function that is given the live range
that wants a register. Its place in the class's table is taken as that of the inline advisor is
(`mlgo_gym.llvm.inside._call_site`), by LLVM's IR. A live range is known by its virtual register, a
field of ``LiveInterval`` (``llvm/include/llvm/CodeGen/LiveInterval.h``).

The advisor holds LLVM's own, a ``DefaultEvictionAdvisor`` with a table of its own, which it goes to
for hints. In functions that are left to it, it is given the live range as well, and nothing is
asked: what comes out of such a function is what comes out of it without an advisor.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from mlgo_gym.llvm.inside._library import slot_of

FEATURE: Final = "live_range"
"""Its name among what is sent."""

_TABLE: Final = "_ZTVN12_GLOBAL__N_114MLEvictAdvisorE"
_FINDS: Final = (
    "_ZNK12_GLOBAL__N_114MLEvictAdvisor24tryFindEvictionCandidateERKN4llvm12LiveInterval"
    "ERKNS1_15AllocationOrderEhRKNS1_8SmallSetINS1_8RegisterELj16ESt4lessIS9_EEE"
)
_OWN_TABLE: Final = "_ZTVN4llvm22DefaultEvictionAdvisorE"
_OWN_FINDS: Final = (
    "_ZNK4llvm22DefaultEvictionAdvisor24tryFindEvictionCandidateERKNS_12LiveIntervalE"
    "RKNS_15AllocationOrderEhRKNS_8SmallSetINS_8RegisterELj16ESt4lessIS8_EEE"
)
RANGE_SYMBOLS: Final = (_TABLE, _FINDS)
"""The names of what tells of live ranges, in the library that holds LLVM."""
SYMBOLS: Final = (*RANGE_SYMBOLS, _OWN_TABLE, _OWN_FINDS)
"""The same, with LLVM's own advisor, which functions are left to."""

_SLOTS: Final = 16
_REGISTER_OFFSET: Final = 112
"""Behind two small vectors, of two segments and of two values, and two pointers."""
_IS_VIRTUAL: Final = 1 << 31
"""Marks registers that are no machine's (``llvm::Register``)."""

_OWN_OFFSET: Final = 96
"""Of LLVM's own in the advisor, behind the class that both are made of; the code sees if it is."""
_TABLE_OFFSET: Final = 16
"""Of what an object points to in its class's table."""

_CODE: Final = f"""
@mlgo_interval = global ptr null
@mlgo_finds = global ptr null
@mlgo_own_finds = global ptr null
@mlgo_own_table = global ptr null
@mlgo_left = global ptr null
@mlgo_left_count = global i64 0

; Whether the function that an advisor is for is left to LLVM: of its MachineFunction, the first
; field behind its table's address, that one's first field is the Function.
define private i1 @is_left(ptr %advisor) {{
  %count = load i64, ptr @mlgo_left_count
  %left = load ptr, ptr @mlgo_left
  %machine_at = getelementptr i8, ptr %advisor, i64 8
  %machine = load ptr, ptr %machine_at
  %function = load ptr, ptr %machine
  br label %loop
loop:
  %index = phi i64 [ 0, %0 ], [ %next, %more ]
  %is_end = icmp eq i64 %index, %count
  br i1 %is_end, label %no, label %more
more:
  %at = getelementptr ptr, ptr %left, i64 %index
  %each = load ptr, ptr %at
  %next = add i64 %index, 1
  %is_it = icmp eq ptr %each, %function
  br i1 %is_it, label %yes, label %loop
yes:
  %own = getelementptr i8, ptr %advisor, i64 {_OWN_OFFSET}
  %table = load ptr, ptr %own
  %own_table = load ptr, ptr @mlgo_own_table
  %is_own = icmp eq ptr %table, %own_table
  ret i1 %is_own
no:
  ret i1 false
}}

; MCRegister tryFindEvictionCandidate(const LiveInterval &, const AllocationOrder &, uint8_t,
;                                     const SmallVirtRegSet &) const
define i32 @mlgo_take_interval(ptr %advisor, ptr %interval, ptr %order, i8 zeroext %cost,
                               ptr %fixed) {{
  %is_left = call i1 @is_left(ptr %advisor)
  br i1 %is_left, label %leave, label %ask
leave:
  %own = getelementptr i8, ptr %advisor, i64 {_OWN_OFFSET}
  %own_finds = load ptr, ptr @mlgo_own_finds
  %found = call i32 %own_finds(ptr %own, ptr %interval, ptr %order, i8 zeroext %cost, ptr %fixed)
  ret i32 %found
ask:
  store ptr %interval, ptr @mlgo_interval
  %finds = load ptr, ptr @mlgo_finds
  %register = call i32 %finds(ptr %advisor, ptr %interval, ptr %order, i8 zeroext %cost, ptr %fixed)
  store ptr null, ptr @mlgo_interval
  ret i32 %register
}}
""" + "".join(
    f"define ptr @place_of_{name}() {{ ret ptr @mlgo_{name} }}\n"
    for name in ("interval", "finds", "own_finds", "own_table", "left", "left_count")
)
_CALLER: Final = """
declare ptr @place_of_interval()
define ptr @call_it() {
  %place = call ptr @place_of_interval()
  ret ptr %place
}
"""


def slot_in(addresses: Mapping[str, int]) -> int:
    """Return the address of the slot that is written to.

    Raises:
        EnvironmentSetupError: the table is another LLVM's.
    """
    return slot_of(addresses[_TABLE], _SLOTS, addresses[_FINDS], _FINDS)


class LiveRanges:
    """Knows the live range that LLVM asks about, from now on for the process's life.

    Args:
        addresses: of `SYMBOLS`, in this process.
        put: writes an address to a place, which may be read-only.
    """

    def __init__(self, addresses: Mapping[str, int], put: Callable[[int, int], None]) -> None:
        from mlgo_gym.llvm.worker import _binding as binding  # noqa: PLC0415 - loads LLVM

        self._code = binding.LoadedCode(binding.compile_native(_CODE, None).data, _CALLER)
        self._interval = self._place("interval")
        self._left, self._left_count = self._place("left"), self._place("left_count")
        self._functions = (ctypes.c_size_t * 0)()
        self._place("finds").value = addresses[_FINDS]
        self._place("own_finds").value = addresses.get(_OWN_FINDS, 0)
        self._place("own_table").value = addresses.get(_OWN_TABLE, 0) + _TABLE_OFFSET
        put(slot_in(addresses), self._code.address("mlgo_take_interval"))

    def value(self) -> bytes:
        """The number of its virtual register, an ``int64_t``; -1 where it has none."""
        number = -1
        if interval := self._interval.value:
            register = ctypes.c_uint32.from_address(interval + _REGISTER_OFFSET).value
            number = register ^ _IS_VIRTUAL if register & _IS_VIRTUAL else -1
        return bytes(ctypes.c_int64(number))

    def leave(self, functions: Sequence[int]) -> None:
        """From now on, LLVM does not ask in these functions alone, which are at such addresses."""
        self._functions = (ctypes.c_size_t * len(functions))(*functions)
        self._left.value = ctypes.addressof(self._functions)
        self._left_count.value = len(functions)

    def _place(self, name: str) -> ctypes.c_size_t:
        place = ctypes.CFUNCTYPE(ctypes.c_size_t)(self._code.address(f"place_of_{name}"))()
        return ctypes.c_size_t.from_address(place)

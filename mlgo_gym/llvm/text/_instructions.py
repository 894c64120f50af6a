"""Facts about a target's instructions that its machine code does not say.

Rematerialisable instructions can be computed again instead of keeping their value. They are the
opcodes that LLVM 22.1's tables mark so (``MCInstrDesc::isRematerializable``), apart by
``isAsCheapAsAMove``; whether a single one counts depends on its operands too, see
`llvm.text._machine_code`. LLVM's score asks after allocation, where the common rule
(``TargetInstrInfo::isReMaterializableImpl``) refuses whatever defines a physical register: only
targets with a rule of their own, such as x86 (``X86InstrInfo``), have any then.

What an instruction loads and stores stands in its memory operands, but for a few opcodes that lose
some; theirs is here (``mayLoad``, ``mayStore``).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

_X86_CHEAP: Final = """
AVX1_SETALLONES AVX2_SETALLONES AVX512_128_SET0 AVX512_128_SETALLONES AVX512_256_SET0
AVX512_256_SETALLONES AVX512_512_SET0 AVX512_512_SETALLONES AVX512_FsFLD0F128 AVX512_FsFLD0SD
AVX512_FsFLD0SH AVX512_FsFLD0SS AVX_SET0 FsFLD0F128 FsFLD0SD FsFLD0SH FsFLD0SS IMPLICIT_DEF
KSET0B KSET0D KSET0Q KSET0W KSET1B KSET1D KSET1Q KSET1W MMX_SET0 MOV16ri MOV32r0 MOV32ri
MOV32ri64 MOV64ri32 MOV8ri PTILEZEROV V_SET0 V_SETALLONES
"""

_X86_OTHERS: Final = """
LD_Fp032 LD_Fp064 LD_Fp080 LD_Fp132 LD_Fp164 LD_Fp180 LEA32r LEA64r LOAD_STACK_GUARD MOV16rm
MOV32ImmSExti8 MOV32r1 MOV32r_1 MOV32rm MOV64ImmSExti8 MOV64ri MOV64rm MOV8rm MOV8rm_NOREX
MOVAPDrm MOVAPSrm MOVDQArm MOVDQUrm MOVSDrm MOVSDrm_alt MOVSSrm MOVSSrm_alt MOVUPDrm MOVUPSrm
VBROADCASTF32X2Z256rm VBROADCASTF32X2Zrm VBROADCASTI32X2Z128rm VBROADCASTI32X2Z256rm
VBROADCASTI32X2Zrm VBROADCASTSDYrm VBROADCASTSDZ256rm VBROADCASTSDZrm VBROADCASTSSYrm
VBROADCASTSSZ128rm VBROADCASTSSZ256rm VBROADCASTSSZrm VBROADCASTSSrm VMOVAPDYrm VMOVAPDZ128rm
VMOVAPDZ256rm VMOVAPDZrm VMOVAPDrm VMOVAPSYrm VMOVAPSZ128rm VMOVAPSZ128rm_NOVLX VMOVAPSZ256rm
VMOVAPSZ256rm_NOVLX VMOVAPSZrm VMOVAPSrm VMOVDQA32Z128rm VMOVDQA32Z256rm VMOVDQA32Zrm
VMOVDQA64Z128rm VMOVDQA64Z256rm VMOVDQA64Zrm VMOVDQAYrm VMOVDQArm VMOVDQU16Z128rm
VMOVDQU16Z256rm VMOVDQU16Zrm VMOVDQU32Z128rm VMOVDQU32Z256rm VMOVDQU32Zrm VMOVDQU64Z128rm
VMOVDQU64Z256rm VMOVDQU64Zrm VMOVDQU8Z128rm VMOVDQU8Z256rm VMOVDQU8Zrm VMOVDQUYrm VMOVDQUrm
VMOVSDZrm VMOVSDZrm_alt VMOVSDrm VMOVSDrm_alt VMOVSHZrm VMOVSHZrm_alt VMOVSSZrm VMOVSSZrm_alt
VMOVSSrm VMOVSSrm_alt VMOVUPDYrm VMOVUPDZ128rm VMOVUPDZ256rm VMOVUPDZrm VMOVUPDrm VMOVUPSYrm
VMOVUPSZ128rm VMOVUPSZ128rm_NOVLX VMOVUPSZ256rm VMOVUPSZ256rm_NOVLX VMOVUPSZrm VMOVUPSrm
VPBROADCASTBZ128rm VPBROADCASTBZ256rm VPBROADCASTBZrm VPBROADCASTDZ128rm VPBROADCASTDZ256rm
VPBROADCASTDZrm VPBROADCASTQZ128rm VPBROADCASTQZ256rm VPBROADCASTQZrm VPBROADCASTWZ128rm
VPBROADCASTWZ256rm VPBROADCASTWZrm
"""


def _table(cheap: str, others: str) -> Mapping[str, bool]:
    opcodes = dict.fromkeys(others.split(), False) | dict.fromkeys(cheap.split(), True)
    return MappingProxyType(opcodes)


_X86: Final = ("x86_64", "i386", "i686")
_AARCH64: Final = ("aarch64", "arm64")

REMATERIALISABLE: Final[Mapping[str, Mapping[str, bool]]] = MappingProxyType(
    dict.fromkeys(_X86, _table(_X86_CHEAP, _X86_OTHERS)) | dict.fromkeys(_AARCH64, _table("", ""))
)
"""For each architecture of a target triple: opcodes, and whether each is as cheap as a move."""

_X86_LOADS_AND_STORES: Final = re.compile(
    r"(ADC|ADD|AND|BTC|BTR|BTS|DEC|INC|NEG|NOT|OR|RC[LR]|RO[LR]|SA[LR]|SBB|SH[LR]D?|SUB|XOR)"
    r"(8|16|32|64)m(|i|i8|i32|r|1|CL|ri8|rCL)"
    r"|XCHG(8|16|32|64)rm|REP_MOVS[BWDQ]_(32|64)|PREFETCH\w+"
)
_X86_ACCESSES: Final = (
    (_X86_LOADS_AND_STORES, "loads_and_stores"),
    (re.compile(r"REP_STOS[BWDQ]_(32|64)|IST_F\w+m\w*"), "stores"),
    (re.compile(r"TRAP"), "loads"),
)
_AARCH64_ACCESSES: Final = (
    (re.compile(r"LD(1|2|3|4|NP|P|R|UR)(?!\w*(PSEUDO|MXI|ZA))\w*"), "loads"),
    (re.compile(r"ST(1|2|3|4|NP|P|R|UR)(?!\w*(PSEUDO|MXI|ZA))\w*"), "stores"),
)

ACCESSES: Final[Mapping[str, tuple[tuple[re.Pattern[str], str], ...]]] = MappingProxyType(
    dict.fromkeys(_X86, _X86_ACCESSES) | dict.fromkeys(_AARCH64, _AARCH64_ACCESSES)
)
"""For an architecture: opcodes, and what they count as whatever their memory operands say."""

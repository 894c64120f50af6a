"""Machine code in, counts out: what LLVM's score tells apart, and block frequencies."""

from __future__ import annotations

import pytest

from mlgo_gym.errors import InternalError
from mlgo_gym.llvm.text._allocation_score import (
    AllocationScore,
    complete_frequencies,
    score_function,
)
from mlgo_gym.llvm.text._machine_code import (
    MachineBlock,
    MachineFunction,
    block_frequencies,
    machine_functions,
    spill_code,
)

HEAD = '--- |\n  target triple = "{triple}"\n  define void @f() {{ ret void }}\n...\n'
FUNCTION = """---
name:            {name}
fixedStack:
  - {{ id: 0, type: default, offset: 8, size: 8, alignment: 8, stack-id: default,
      isImmutable: true, isAliased: false }}
  - {{ id: 1, type: default, offset: 0, size: 8, alignment: 8, isImmutable: false }}
stack:           []
body:             |
  bb.0 (%ir-block.0):
    successors: %bb.1(0x40000000), %bb.2(0x40000000)
    liveins: $rdi

    {instruction}

  bb.1:
    JMP_1 %bb.2

  bb.2:
    RET64
...
"""


def text(instruction: str, triple: str = "x86_64-linux", name: str = "f") -> str:
    return HEAD.format(triple=triple) + FUNCTION.format(name=name, instruction=instruction)


@pytest.mark.parametrize(
    ("instruction", "kind"),
    [
        ("renamable $rbx = COPY killed renamable $rsi", "copies"),
        ("$rax = MOV64rm $rdi, 1, $noreg, 0, $noreg :: (load (s64) from %ir.0, !tbaa !8)", "loads"),
        ("MOV64mr %stack.0, 1, $noreg, 0, $noreg, $rax :: (store (s64) into %stack.0)", "stores"),
        ("MOV64mr $rdi, 1, $noreg, 0, $noreg, $rax :: (store (s64) into %ir.load)", "stores"),
        (
            "ADD64mr $rdi, 1, $noreg, 0, $noreg, $rax :: (store (s64) into %ir.0), "
            "(load (s64) from %ir.0)",
            "loads_and_stores",
        ),
        (
            "INC64m $rdi, 1, $noreg, 0, $noreg, implicit-def dead $eflags :: (store (s64))",
            "loads_and_stores",
        ),
        ("REP_MOVSQ_64 implicit-def $rcx, implicit $rcx", "loads_and_stores"),
        ("$eax = LXADD32 $eax, $rdi :: (load store seq_cst (s32) on %ir.p)", "loads_and_stores"),
        ("renamable $eax = MOV32ri 5", "cheap_rematerialisations"),
        ("$eax = MOV32r0 implicit-def dead $eflags", "cheap_rematerialisations"),
        ("$xmm0 = IMPLICIT_DEF", "cheap_rematerialisations"),
        ("$rax = MOV64ri 5000000000", "expensive_rematerialisations"),
        ("$rax = LEA64r %stack.0, 1, $noreg, 8, $noreg", "expensive_rematerialisations"),
        ("$rax = LEA64r $rip, 1, $noreg, @g, $noreg", None),
        ("$rax = LEA64r $rdi, 1, $noreg, 8, $noreg", None),
        (
            "$xmm0 = MOVSDrm_alt $rip, 1, $noreg, %const.0, $noreg :: "
            "(load (s64) from constant-pool)",
            "expensive_rematerialisations",
        ),
        (
            "$rax = MOV64rm $rip, 1, $noreg, @g, $noreg :: "
            "(dereferenceable invariant load (s64) from @g)",
            "expensive_rematerialisations",
        ),
        (
            "$rax = MOV64rm %fixed-stack.0, 1, $noreg, 0, $noreg :: (load (s64) from "
            "%fixed-stack.0)",
            "expensive_rematerialisations",
        ),
        (
            "$rax = MOV64rm %fixed-stack.1, 1, $noreg, 0, $noreg :: (load (s64) from "
            "%fixed-stack.1)",
            "loads",
        ),
        (
            "$rax = nuw MOV64rm $rip, 1, $noreg, @g, $noreg :: (volatile dereferenceable "
            "invariant load (s64) from @g)",
            "loads",
        ),
        ("INLINEASM &nop, 1 /* sideeffect */, 8, $rdi :: (store (s8))", None),
        ("CALL64pcrel32 @g, <regmask $rbx>, implicit $rsp", None),
        ("DBG_VALUE $rax, $noreg, !1, !DIExpression()", None),
        ("KILL killed renamable $eax", None),
    ],
)
def test_what_an_instruction_counts_as(instruction: str, kind: str | None) -> None:
    (function,) = machine_functions(text(instruction), "m")
    assert dict(function.blocks[0].counts) == ({kind: 1} if kind else {})


@pytest.mark.parametrize(
    ("instruction", "kind"),
    [
        ("$x0 = MOVi64imm 5", None),
        ("$x0 = LDRXui $x1, 0 :: (load (s64) from %ir.p)", "loads"),
        ("$q0 = LD1i8 killed $q0, 3, $x0", "loads"),
        ("STRXui $x0, %stack.0, 0 :: (store (s64) into %stack.0)", "stores"),
        (
            "$x0 = LDADDX $x1, $x2 :: (load store monotonic (s64) on %ir.p)",
            "loads_and_stores",
        ),
    ],
)
def test_on_aarch64_nothing_is_rematerialisable(instruction: str, kind: str | None) -> None:
    (function,) = machine_functions(text(instruction, "aarch64-linux-gnu"), "m")
    assert dict(function.blocks[0].counts) == ({kind: 1} if kind else {})


def test_blocks_and_names() -> None:
    whole = text("NOOP") + FUNCTION.format(name="'it''s'", instruction="NOOP")
    first, second = machine_functions(whole, "m")
    assert (first.name, second.name) == ("f", "it's")
    assert [block.number for block in first.blocks] == [0, 1, 2]
    assert first.blocks[0].successors == ((1, 0.5), (2, 0.5))


PRINTED = """block-frequency-info: f
 - BB0[entry]: float = 1.0, int = 100

remark: something else
block-frequency-info: f
 - BB0[entry]: float = 1.0, int = 8
 - BB1: float = 32.0, int = 256

block-frequency-info: g
"""


def test_frequencies_are_those_printed_last() -> None:
    assert block_frequencies(PRINTED) == {"f": {0: 1.0, 1: 32.0}}


def test_blocks_in_edges_have_the_frequency_of_their_edges() -> None:
    blocks = (
        MachineBlock(0, ((1, 0.25), (3, 0.75)), {}),
        MachineBlock(1, ((2, 1.0),), {"loads": 2}),
        MachineBlock(3, ((2, 1.0),), {"copies": 4}),
        MachineBlock(2, (), {"stores": 1}),
    )
    function = MachineFunction("f", blocks)
    frequencies = complete_frequencies(function, {0: 2.0, 2: 2.0})
    assert frequencies == {0: 2.0, 1: 0.5, 2: 2.0, 3: 1.5}
    score = score_function(function, frequencies)
    assert score.counts["copies"] == 6.0
    assert score.value == pytest.approx(2 * 0.5 * 4 + 4 * 1.5 * 0.2 + 2.0)
    assert AllocationScore.total([score, score]).value == pytest.approx(2 * score.value)
    with pytest.raises(InternalError, match="^function 'f': no frequency of bb.1$"):
        score_function(function, {0: 1.0})


SPILLS = """\
---
name:            f
stack:
  - { id: 0, name: '', type: spill-slot, offset: 0, size: 8, alignment: 8 }
  - { id: 1, name: x, type: default, offset: 0, size: 8, alignment: 8 }
body:             |
  bb.0:
    MOV64mr %stack.0, 1, $noreg, 0, $noreg, $rax :: (store (s64) into %stack.0)
    MOV64mr %stack.1, 1, $noreg, 0, $noreg, $rax :: (store (s64) into %stack.1)

  bb.1 (%ir-block.2):
    successors: %bb.0
    $rax = MOV64rm %stack.0, 1, $noreg, 0, $noreg :: (load (s64) from %stack.0)
"""


def test_spill_code_is_what_uses_spill_slots() -> None:
    """Local variables have slots too, which no allocation changes."""
    function = spill_code(SPILLS, "f")
    assert function == MachineFunction(
        "f", (MachineBlock(0, (), {"stores": 1}), MachineBlock(1, (), {"loads": 1}))
    )
    assert score_function(function, {0: 1.0, 1: 0.5}).value == 1 * 1.0 + 4 * 0.5

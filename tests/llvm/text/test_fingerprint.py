"""Fingerprints: what makes two bodies the same, and what does not."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from mlgo_gym.corpus._corpus import Corpus, Module
from mlgo_gym.curation._facts import describe_module
from mlgo_gym.llvm._compiler import Compiler
from mlgo_gym.llvm.worker import _binding as binding

BASE = """
@.str = private constant [3 x i8] c"ab\\00"
%struct.point = type { i32, i32 }
define i32 @f(i32 %a, i32 %b) {
entry:
  %p = getelementptr %struct.point, ptr @.str, i32 0, i32 1
  %c = icmp eq i32 %a, 0
  br i1 %c, label %yes, label %no
yes:
  %d = sub i32 %a, %b
  ret i32 %d
no:
  %e = call i32 @g(i32 %b)
  ret i32 %e
}
declare i32 @g(i32)
"""


def fingerprint(compiler: Compiler, text: str) -> str:
    (body,) = describe_module(compiler, Module.from_ir(text)).bodies
    return body.fingerprint


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("%d", "%difference"),
        ("%no", "%other"),
        ("@f(", "@renamed("),
        ("@.str", "@.str.17"),
        ("struct.point", "struct.point.3"),
        ("define i32 @f(i32 %a, i32 %b)", "define i32 @f(i32 %a, i32 %b) minsize optsize"),
        ("ret i32 %e", "ret i32 %e, !note !0"),
    ],
)
def test_what_makes_no_difference(compiler: Compiler, old: str, new: str) -> None:
    changed = BASE.replace(old, new).replace("no:", "other:" if new == "%other" else "no:")
    changed += "!0 = !{}" if "!note" in new else ""
    assert fingerprint(compiler, changed) == fingerprint(compiler, BASE)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("sub i32 %a, %b", "sub i32 %b, %a"),
        ("sub i32", "sub nsw i32"),
        ("icmp eq i32 %a, 0", "icmp eq i32 %a, 1"),
        ("@g(", "@h("),
        ('c"ab\\00"', 'c"ac\\00"'),
        ("label %yes, label %no", "label %no, label %yes"),
        ("struct.point", "struct.pair"),
    ],
)
def test_what_makes_a_difference(compiler: Compiler, old: str, new: str) -> None:
    assert fingerprint(compiler, BASE.replace(old, new)) != fingerprint(compiler, BASE)


def test_debug_information_makes_no_difference(
    compiler: Compiler, clang22: str, tmp_path: Path
) -> None:
    (tmp_path / "x.c").write_text("int f(int a, int b) { int c = a * b; return c ? c : a; }")
    found = []
    for flags in (["-g"], ["-g0"], ["-gline-tables-only", "-fdiscard-value-names"]):
        command = [clang22, "-O1", *flags, "-c", "x.c", "-emit-llvm", "-o", "x.bc"]
        subprocess.run(command, cwd=tmp_path, check=True)
        (body,) = describe_module(compiler, Module.from_file(tmp_path / "x.bc")).bodies
        found.append((body.fingerprint, body.instructions))
    assert len(set(found)) == 1


@pytest.mark.parametrize(
    ("definition", "is_own"),
    [
        ("define void @f() { ret void }", True),
        ("define internal void @f() { ret void }", True),
        ("define linkonce_odr void @f() { ret void }", False),
        ("define weak_odr void @f() { ret void }", False),
        ("define available_externally void @f() { ret void }", False),
        ("define internal void @__cxx_global_var_init.3() { ret void }", False),
        ("define internal void @_GLOBAL__sub_I_x.cpp() { ret void }", False),
    ],
)
def test_which_bodies_are_the_modules_own(
    compiler: Compiler, definition: str, is_own: bool
) -> None:
    (body,) = describe_module(compiler, Module.from_ir(definition)).bodies
    assert body.is_own == is_own


def test_instructions_are_counted_as_llvm_counts_them(compiler: Compiler, sample: Corpus) -> None:
    binding.Session()
    for name in sample:
        with binding.parse(sample[name].data, is_text=False, verify=False) as module:
            counts = {
                function.name: sum(1 for block in function.blocks for _ in block.instructions)
                for function in module.functions
                if not function.is_declaration
            }
        bodies = describe_module(compiler, sample[name]).bodies
        assert {body.name: body.instructions for body in bodies} == counts


def test_texts_inside_are_compared_as_they_are(compiler: Compiler) -> None:
    """Names in them are no names: nothing is renumbered in assembly."""
    asm = 'call void asm sideeffect "nop # %a @.str !3 #4", ""()\n  %e = '
    found = {
        fingerprint(compiler, BASE.replace("%e = ", asm.replace(*each)))
        for each in (("", ""), ("%a", "%b"), ("@.str", "@.other"), ("!3", "!4"), ("#4", "#5"))
    }
    assert len(found) == 5

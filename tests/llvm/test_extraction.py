"""A module's text in, one function's text out."""

from __future__ import annotations

import pytest

from mlgo_gym.errors import InternalError
from mlgo_gym.llvm.extraction import Assembly

MODULE = """\
target triple = "x86_64-linux"

@table = internal constant [1 x ptr] [ptr blockaddress(@other, %a)]
@llvm.used = appending global [1 x ptr] [ptr @f]
@near = internal alias i32 (i32), ptr @other
@self = alias void (), ptr @f

module asm "nop"

define void @f() {
  %x = call i32 @other(i32 1)
  ret void
}

define internal fastcc noundef i32 @other(i32 %0) unnamed_addr #0 comdat($other) personality ptr @p !dbg !4 {
  ret i32 %0
}

define linkonce_odr void @"q {"() comdat {
  ret void
}

declare i32 @p(...)

attributes #0 = { nounwind }
"""  # noqa: E501

ALONE = """\
target triple = "x86_64-linux"




declare i32 @p(...)

attributes #0 = { nounwind }
declare dso_local i32 @near(i32)
@self = alias void (), ptr @f
declare dso_local fastcc noundef i32 @other(i32 %0) unnamed_addr #0
declare void @"q {"()
define void @f() {
  %x = call i32 @other(i32 1)
  ret void
}"""


def test_one_definition_is_left() -> None:
    lines = [line for line in Assembly(MODULE).alone("f").splitlines() if line]
    assert lines == [line for line in ALONE.splitlines() if line]


def test_tables_of_its_own_addresses_stay() -> None:
    text = Assembly(MODULE).alone("other")
    assert "@table = internal constant" in text
    assert "define dso_local fastcc noundef i32 @other" in text


def test_names_that_are_quoted() -> None:
    assert 'define void @"q {"() comdat {' in Assembly(MODULE).alone("q {")


def test_a_function_that_is_not_there() -> None:
    with pytest.raises(InternalError) as caught:
        Assembly(MODULE).alone("g")
    assert str(caught.value) == "extraction: expected a definition of 'g', found none"

"""Guards of code that guesses: a wrong guess is counted, asked about, and left."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final

from mlgo_gym.llvm import Signature

ASKS: Final = "tiers.ask"
"""The name of the block where it asks."""


@dataclass(frozen=True, slots=True)
class Guard:
    """Addresses that code that guesses needs of the program that it runs in.

    Attributes:
        code: where it goes on.
        countdown: a count of wrong guesses, which is asked about at zero.
        ask: what is called there; it keeps all registers.
    """

    GOES_ON: ClassVar[str] = "tiers.other"
    METADATA: ClassVar = {"0": '!0 = !{!"branch_weights", i32 1, i32 1048575}'}

    code: int
    countdown: int
    ask: int

    def failed(self) -> Iterator[str]:
        """The end of a block where a guess was wrong, and the next block, which asks.

        The block `GOES_ON` follows, which `left` makes, and the module's metadata has `METADATA`.
        """
        place = f"ptr inttoptr (i64 {self.countdown} to ptr)"
        yield f"  %tiers.count = load i64, {place}"
        yield "  %tiers.less = sub i64 %tiers.count, 1"
        yield f"  store i64 %tiers.less, {place}"
        yield "  %tiers.is_due = icmp eq i64 %tiers.less, 0"
        yield f"  br i1 %tiers.is_due, label %{ASKS}, label %{self.GOES_ON}, !prof !0"
        yield f"{ASKS}:"
        yield f"  call void inttoptr (i64 {self.ask} to ptr)()"
        yield f"  br label %{self.GOES_ON}"

    def left(self, signature: Signature, given: Sequence[str], how: str = "") -> Iterator[str]:
        """The lines that call the code, and return what it does.

        Args:
            signature: of the function that guesses.
            given: arguments, as they are written.
            how: the kind of call, such as ``musttail ``.
        """
        yield from returned(signature, f"inttoptr (i64 {self.code} to ptr)", given, how)


def returned(
    signature: Signature, callee: str, given: Sequence[str], how: str = "", suffix: str = ""
) -> Iterator[str]:
    """The lines of a call whose result is returned.

    Args:
        signature: of the function that returns it.
        callee: what is called.
        given: arguments, as they are written.
        how: the kind of call, such as ``musttail ``.
        suffix: of the result's name.
    """
    called = signature.before.removeprefix("define ")
    call = f"{how}call {called} {callee}({', '.join(given)})"
    if signature.result == "void":
        yield f"  {call}"
        yield "  ret void"
    else:
        yield f"  %tiers.result{suffix} = {call}"
        yield f"  ret {signature.result} %tiers.result{suffix}"

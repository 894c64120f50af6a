"""Answers LLVM's questions inside its own process.

`llvm.inside._interposer` takes what LLVM does to its channel. As long as there is somebody here
who answers, the host hears nothing; where nobody is, or no longer, LLVM speaks to the host's pipes,
from the header on, as if it had never been otherwise.
"""

from __future__ import annotations

import ctypes
import os
import traceback
from array import array
from collections.abc import Callable, Sequence
from contextlib import suppress
from time import monotonic_ns
from typing import Any, Final

from mlgo_gym.llvm.inside._interposer import Interposer
from mlgo_gym.llvm.worker._answers import Answerer, Bound
from mlgo_gym.llvm.worker._besides import CONTEXT, OBSERVATION, Besides


class Conversation:
    """One problem's part in a compilation.

    Args:
        base: what LLVM is told of the channel's names.
        answerer: who answers here; ``None`` leaves it to the host.
        keep: what was asked is told with the answers, and when LLVM asked and had its answer.
        besides: tells what is sent besides, as if LLVM did; ``None`` where nothing is.
    """

    def __init__(
        self, base: bytes, answerer: Answerer | None, keep: bool, besides: Besides | None = None
    ) -> None:
        self.base: Final = base
        self.answerer = answerer
        self.keep: Final = keep
        self.besides: Final = besides
        self.inbound = -1
        self.bound: Bound | None = None
        self.header = self.context = self.reply = b""
        self.unread = bytearray()
        self.advice: list[bytes] = []
        self.kept = bytearray()
        self.asked_ns = 0
        self.times_ns = array("q")

    def begin(self) -> None:
        """LLVM has opened the channel, and will say what it sends."""
        self.bound, self.header, self.context, self.reply = None, b"", b"", b""
        self.unread.clear()
        if self.besides:
            self.besides.begin()

    def taken(self, size: int) -> bytes:
        """The first bytes of what LLVM has written, which have been dealt with."""
        data = bytes(self.unread[:size])
        del self.unread[:size]
        if self.keep:
            self.kept += data
        return data


def _nobody(_message: dict[str, Any], _data: bytes) -> None:
    """Hear nothing: LLVM is not listened to yet."""


class Inside:
    """The part of this process that answers LLVM, once it is installed; made once."""

    def __init__(self) -> None:
        self._tell: Callable[[dict[str, Any], bytes], None] = _nobody
        self._asked: list[Conversation] = []
        self._of: dict[int, Conversation] = {}
        self._interposer: Final = Interposer(self._on_open, self._on_read, self._on_write)

    def install(self, tell: Callable[[dict[str, Any], bytes], None]) -> None:
        """Hear LLVM from now on.

        Args:
            tell: tells the host something in the middle of a compilation: JSON values, and bytes.
        """
        self._tell = tell
        self._interposer.install()

    def begin(self, asked: Sequence[Conversation]) -> None:
        """The next compilation's problems."""
        self._asked = list(asked)

    def end(self) -> None:
        """LLVM has ended, and closed its descriptors."""
        for descriptor in self._of:
            self._interposer.mark(descriptor, is_taken=False)
        self._of.clear()
        self._asked.clear()

    def answered(self) -> tuple[list[dict[str, Any]], bytes]:
        """Return the counts and bytes of each problem's answers since the last call."""
        about, data = [], bytearray()
        for each in self._asked:
            sizes = [len(advice) for advice in each.advice]
            times = each.times_ns.tobytes()
            about.append({"advice": sizes, "stream": len(each.kept), "times": len(times)})
            data += b"".join(each.advice) + each.kept + times
            each.advice = []
            each.kept.clear()
            each.times_ns = array("q")
        return about, bytes(data)

    def _on_open(self, path: bytes, flags: int, mode: int) -> int:
        descriptor = int(self._interposer.real_open(path, flags, mode))
        if descriptor < 0:
            return descriptor
        if self._of.pop(descriptor, None):  # closed, and another file's number now
            self._interposer.mark(descriptor, is_taken=False)
        base, _, end = path.rpartition(b".")
        asked = next((each for each in self._asked if each.base == base), None)
        if asked is None:
            return descriptor
        self._of[descriptor] = asked
        if end == b"in":
            asked.inbound = descriptor
        is_marked = self._interposer.mark(descriptor, is_taken=True)
        if asked.answerer is None or not is_marked:
            self._leave(descriptor, asked)
        if end == b"out":
            asked.begin()
        return descriptor

    def _leave(self, outbound: int, asked: Conversation) -> None:
        """From now on the host answers; what it is told is taken where there is more to tell."""
        asked.answerer = None
        self._interposer.mark(outbound, is_taken=asked.besides is not None)
        self._interposer.mark(asked.inbound, is_taken=False)

    def _on_read(self, descriptor: int, address: int, size: int) -> int:
        asked = self._of[descriptor]
        taken, asked.reply = asked.reply[:size], asked.reply[size:]
        ctypes.memmove(address, taken, len(taken))
        return len(taken)

    def _on_write(self, descriptor: int, address: int, size: int) -> int:
        asked = self._of[descriptor]
        data = ctypes.string_at(address, size)
        asked.asked_ns = monotonic_ns()
        try:
            asked.unread += asked.besides.told(data) if asked.besides else data
            while _take(asked):
                continue
        except BaseException as error:  # noqa: BLE001 - LLVM cannot be unwound: the host is told
            self._tell({"raised": words_of(error)}, b"")
            asked.answerer = None
        if asked.answerer is None:
            self._leave(descriptor, asked)
            self._hand_over(descriptor, asked)
        return size

    def _hand_over(self, descriptor: int, asked: Conversation) -> None:
        """Let the host hear all that it has not, as if it had been asked from the beginning."""
        if any(each.advice for each in self._asked):
            self._tell(*_as_message(self.answered()))
        data = asked.header + asked.context + bytes(asked.unread)
        asked.header = asked.context = b""
        asked.unread.clear()
        with suppress(OSError):  # the host has gone; whoever waits for it will find out
            while data:
                data = data[os.write(descriptor, data) :]


def words_of(error: BaseException) -> str:
    """An exception and where it was raised, as Python prints it."""
    return "".join(traceback.format_exception(error))


def _as_message(answered: tuple[list[dict[str, Any]], bytes]) -> tuple[dict[str, Any], bytes]:
    about, data = answered
    return {"handed": about}, data


def _take(asked: Conversation) -> bool:
    """Deal with the first message, where it is whole; nobody answers any more where none can."""
    unread, bound = asked.unread, asked.bound
    end = unread.find(b"\n") + 1
    if not end or asked.answerer is None:
        return False
    if unread.startswith(OBSERVATION) and bound:
        whole = end + bound.size_bytes + 1
        if len(unread) < whole:
            return False
        index = int(unread[len(OBSERVATION) : end - 2])
        advice = bound.answer(bytes(unread[end : whole - 1]), asked.context, index)
        if advice is None:
            asked.answerer = None
            return False
        asked.reply = advice
        asked.advice.append(advice)
        if asked.keep:
            asked.times_ns.extend((asked.asked_ns, monotonic_ns()))
        asked.taken(whole)
    elif unread.startswith(CONTEXT):
        asked.context = asked.taken(end)
    else:
        asked.header, asked.context = asked.taken(end), b""
        asked.bound = asked.answerer(asked.header)
        if asked.bound is None:
            asked.answerer = None
    return bool(unread)

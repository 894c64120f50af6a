"""The ends at which a worker is heard: the socket of its frames, and its standard error."""

from __future__ import annotations

import contextlib
import os
import socket
import weakref
from collections.abc import Sequence
from typing import Any, Final

from mlgo_gym.llvm._request import FrameDecoder, encode_frame

_CHUNK_BYTES: Final = 1 << 16
_STDERR_LINES: Final = 20
_STDERR_BYTES: Final = 1 << 14


class FrameSocket:
    """This process's end of the socket that frames go over, both ways; it never waits.

    Attributes:
        descriptor: what is to be watched for frames that come.
    """

    def __init__(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        self._socket = connection
        self._unsent = memoryview(b"")
        self._decoder = FrameDecoder()
        self.descriptor: Final = connection.fileno()

    @property
    def has_unsent(self) -> bool:
        """Whether something is left to send, once the child takes more."""
        return bool(self._unsent)

    def send(
        self, message: dict[str, Any], payload: bytes = b"", descriptors: Sequence[int] = ()
    ) -> None:
        """Send a frame as far as the child takes it; descriptors leave with its first bytes."""
        self._unsent = memoryview(bytes(self._unsent) + encode_frame(message, payload))
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            if descriptors:
                start = self._unsent[:_CHUNK_BYTES]
                sent = socket.send_fds(self._socket, [start], descriptors)
                self._unsent = self._unsent[sent:]
        self.flush()

    def flush(self) -> None:
        """Send of what is left as much as the child takes."""
        with contextlib.suppress(BlockingIOError, BrokenPipeError, ConnectionResetError):
            while self._unsent:
                self._unsent = self._unsent[self._socket.send(self._unsent[:_CHUNK_BYTES]) :]

    def receive(self) -> bool:
        """Take in what has come; returns whether the child's end is still open."""
        try:
            while data := self._socket.recv(_CHUNK_BYTES):
                self._decoder.feed(data)
        except BlockingIOError:
            return True
        except ConnectionResetError:
            pass
        return False

    def next_frame(self) -> tuple[dict[str, Any], bytes] | None:
        """The next frame that has arrived whole, if there is one."""
        return self._decoder.next_frame()

    def shut_down(self) -> None:
        """Tell the child that nothing more comes."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)


class StandardError:
    """A child's standard error: the last of it is always known, all of it on demand.

    Args:
        descriptor: where it arrives; it is not read once ``owner``, which closes it, is not alive.
        owner: the finalizer of what the descriptor belongs to.
    """

    def __init__(self, descriptor: int, owner: weakref.finalize[..., Any]) -> None:
        os.set_blocking(descriptor, False)
        self.descriptor: Final = descriptor
        self._owner = owner
        self._last = b""
        self._kept: bytearray | None = None

    def drain(self) -> bool:
        """Take in what has come; returns whether the child's end is still open."""
        if not self._owner.alive:  # whatever has that number now is not the child's
            return False
        try:
            while data := os.read(self.descriptor, _CHUNK_BYTES):
                self._last = (self._last + data)[-_STDERR_BYTES:]
                if self._kept is not None:
                    self._kept += data
        except BlockingIOError:
            return True
        return False

    def keep(self, keep: bool) -> None:
        """Whether what comes from now on is kept whole, for `take`."""
        self._kept = bytearray() if keep else None

    def take(self) -> str:
        """Return what was kept since the last call, all that the child wrote so far included."""
        self.drain()
        taken = (self._kept or b"").decode("utf-8", "replace")
        if self._kept is not None:
            self._kept.clear()
        return taken

    def text(self) -> str:
        """The end of what has come."""
        return self._last.decode("utf-8", "replace")

    def tail(self) -> tuple[str, ...]:
        """The last lines of it, without empty ones and what was printed on demand."""
        lines = self.text().splitlines()
        if len(self._last) == _STDERR_BYTES:  # the first line may have lost its start
            del lines[:1]
        return tuple(line for line in lines if _is_message(line))[-_STDERR_LINES:]


def _is_message(line: str) -> bool:
    """Not an empty line, and no block frequency, which a worker may have been asked for."""
    return bool(line.strip()) and not line.startswith((" - BB", "block-frequency-info: "))

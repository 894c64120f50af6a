"""Frames: what parent and worker say to each other over a socket.

A frame is a JSON object and, optionally, raw bytes::

    uint32 length of the JSON, big-endian | uint32 length of the bytes | JSON | bytes

Nothing is unpickled. Both ends are this package's own; the parent is the one that must not be
harmed by what a module does to the child, so it takes in no more than the lengths allow.
"""

from __future__ import annotations

import json
import struct
from typing import Any, Final

from mlgo_gym.errors import InternalError

MAX_JSON_BYTES: Final = 1 << 26
MAX_PAYLOAD_BYTES: Final = (1 << 32) - 1

_LENGTHS: Final = struct.Struct(">II")


def encode_frame(message: dict[str, Any], payload: bytes = b"") -> bytes:
    """The bytes of one frame.

    >>> decoder = FrameDecoder()
    >>> decoder.feed(encode_frame({"op": "compile"}, b"BC"))
    >>> decoder.next_frame()
    ({'op': 'compile'}, b'BC')
    """
    if len(payload) > MAX_PAYLOAD_BYTES:
        raise InternalError(
            f"frame: expected at most {MAX_PAYLOAD_BYTES} bytes, found {len(payload)}"
        )
    text = json.dumps(message).encode()
    return _LENGTHS.pack(len(text), len(payload)) + text + payload


class FrameDecoder:
    """Turns bytes, in pieces of any size, into frames."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> None:
        """Take in the bytes that follow the ones fed before."""
        self._buffer += data

    def next_frame(self) -> tuple[dict[str, Any], bytes] | None:
        """The next whole frame, or ``None`` where more bytes are needed first.

        Raises:
            InternalError: the other side does not speak this protocol.
        """
        if len(self._buffer) < _LENGTHS.size:
            return None
        json_size, payload_size = _LENGTHS.unpack_from(self._buffer)
        if json_size > MAX_JSON_BYTES:
            raise InternalError(
                f"frame: expected at most {MAX_JSON_BYTES} bytes of JSON, found {json_size}"
            )
        start, end = _LENGTHS.size + json_size, _LENGTHS.size + json_size + payload_size
        if len(self._buffer) < end:
            return None
        message = json.loads(self._buffer[_LENGTHS.size : start])
        payload = bytes(self._buffer[start:end])
        del self._buffer[:end]
        return message, payload

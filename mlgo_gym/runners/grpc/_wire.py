"""The common part of both ends of the gRPC contract: limits, token, messages, deadlines."""

from __future__ import annotations

import math
import ssl
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields
from typing import Final

from corpus_tools.printable import printable
from corpus_tools.reading import brief
from mlgo_gym.base import EnvironmentSetupError, OptionsError, SpecError, TensorSpec

try:
    import grpc
    from google.protobuf.message import DecodeError

    from mlgo_gym.runners.grpc._proto.v1 import model_runner_pb2 as messages
except ImportError as error:
    raise EnvironmentSetupError("gRPC: needs grpcio; run: pip install 'mlgo-gym[grpc]'") from error

__all__ = ["grpc", "messages"]  # the extra stands behind this module alone

if sys.byteorder != "little":
    raise EnvironmentSetupError("gRPC: tensors travel in little-endian order, which this machine "
                                "does not have")  # fmt: skip

DEFAULT_MAX_MESSAGE_BYTES: Final = 4 << 20
"""The largest message that either end takes, in bytes, unless told otherwise: 4 MiB."""

MESSAGE_OVERHEAD_BYTES: Final = 64
"""More bytes than a message adds to the tensors that it carries."""

SERVICE: Final = messages.DESCRIPTOR.services_by_name["ModelRunner"].full_name
"""The service, whose one method is ``Run``."""

AUTHORIZATION: Final = "authorization"
"""The metadata's key under which the bearer token travels."""

MAX_HEADER_BYTES: Final = 1 << 20
"""The largest message that a host takes that is not an observation, in bytes."""

_MAX_DIMENSIONS: Final = 32
_LENGTH_DELIMITED: Final = 2
_MAX_DETAILS: Final = 1000  # they travel in HTTP/2 trailers, which peers bound
_LONGEST_LENGTH: Final = 11


@dataclass(frozen=True, slots=True)
class StreamLimits:
    """Limits of a host on the streams that it serves.

    Attributes:
        streams: how many are served at a time, each by a thread; more are refused.
        message_bytes: the largest message that is taken or sent, in bytes.
        messages: how many messages a stream may send.
        total_bytes: how many bytes a stream may send.
        contexts: how many different contexts a stream may have.
        header_s: how long a stream may take to send its header, in seconds.
        idle_s: how long a stream may be silent after that, in seconds; infinite is for ever. A
            compiler that computes is as silent as one that has lost interest; one whose machine is
            gone does not answer the transport's pings, and is noticed within 80 seconds.

    Raises:
        OptionsError: a limit is not above 0.

    >>> StreamLimits(streams=4).idle_s
    300.0
    """

    streams: int = 16
    message_bytes: int = DEFAULT_MAX_MESSAGE_BYTES
    messages: int = 1 << 24
    total_bytes: int = 1 << 34
    contexts: int = 1 << 16
    header_s: float = 10.0
    idle_s: float = 300.0

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            if not value > 0:
                raise OptionsError(f"{each.name}: expected a number above 0, found {value}")


def channel_options(max_message_bytes: int) -> list[tuple[str, int]]:
    """The settings of either end, with its limit on messages in bytes."""
    return [
        ("grpc.max_receive_message_length", max_message_bytes),
        ("grpc.max_send_message_length", max_message_bytes),
        ("grpc.keepalive_time_ms", 60_000),  # notices a peer whose machine is gone
        ("grpc.keepalive_timeout_ms", 20_000),
        ("grpc.http2.max_pings_without_data", 0),
        ("grpc.http2.min_ping_interval_without_data_ms", 30_000),
    ]


def check_message_limit(
    features: Iterable[TensorSpec], advice: TensorSpec, max_message_bytes: int
) -> None:
    """Raise where an observation or an advice would not fit into a message."""
    sizes = {"observations": sum(each.size_bytes for each in features), "advice": advice.size_bytes}
    for what, size_bytes in sizes.items():
        if size_bytes + MESSAGE_OVERHEAD_BYTES > max_message_bytes:
            raise SpecError(
                f"gRPC: expected {what} of at most {max_message_bytes - MESSAGE_OVERHEAD_BYTES} "
                f"bytes (the message limit is {max_message_bytes}), found {size_bytes}"
            )


def check_token(token: str | None) -> None:
    """Raise where a token cannot travel as a bearer token."""
    if token is not None and not (token and all("!" <= each <= "~" for each in token)):
        raise OptionsError("gRPC token: expected visible ASCII characters, at least one")


def check_certificate(data: bytes, name: str) -> None:
    """Raise where no certificate is found that a host could be known by."""
    pem = data.decode("ascii", "ignore")  # what stands between certificates may be any text
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=pem)
    except (ssl.SSLError, ValueError) as error:
        raise OptionsError(f"{name}: expected a certificate as PEM, found none") from error


def clipped(message: str) -> str:
    """The start of a message, in which peers' control characters are spelled out."""
    start = printable(message[: _MAX_DETAILS + 1])
    return start if len(start) <= _MAX_DETAILS else f"{start[:_MAX_DETAILS]}..."


def bearer(token: str) -> str:
    """The value that the metadata holds for a token."""
    return f"Bearer {token}"


def parse_request(data: bytes) -> messages.CompilerMessage:
    """A message, empty where it is none: grpcio 1.85.1 never stops after a failed deserializer.

    A large one is parsed if it is an observation: a header can take a hundred times its size.
    """
    if len(data) > MAX_HEADER_BYTES and not _is_observation(data):
        return messages.CompilerMessage()
    try:
        return messages.CompilerMessage.FromString(data)
    except DecodeError:
        return messages.CompilerMessage()


def _is_observation(data: bytes) -> bool:
    """Whether all of an encoded message is one field, its observation."""
    if data[0] != messages.CompilerMessage.OBSERVATION_FIELD_NUMBER << 3 | _LENGTH_DELIMITED:
        return False
    length = shift = 0
    for start, byte in enumerate(data[1:_LONGEST_LENGTH], start=2):
        length |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return start + length == len(data)
    return False


def to_message(spec: TensorSpec) -> messages.TensorSpec:
    """A spec as it travels."""
    return messages.TensorSpec(name=spec.name, port=spec.port, type=spec.type, shape=spec.shape)


def from_message(message: messages.TensorSpec) -> TensorSpec:
    """A spec that has arrived."""
    if len(message.shape) > _MAX_DIMENSIONS:  # before anything multiplies them
        raise SpecError(
            f"tensor {brief(message.name)}: expected at most {_MAX_DIMENSIONS} dimensions, "
            f"found {len(message.shape)}"
        )
    return TensorSpec(message.name, message.type, tuple(message.shape), message.port)


def difference(expected: Sequence[TensorSpec], found: Sequence[TensorSpec]) -> str:
    """The first difference between two lists of specs, in words; empty where there is none."""
    for index, (one, other) in enumerate(zip(expected, found, strict=False)):
        if one != other:
            return f"feature {index}: expected {one.to_json()}, found {other.to_json()}"
    if len(expected) != len(found):
        return f"expected {len(expected)} features, found {len(found)}"
    return ""


class Watchdog:
    """Cancels a call whose wait outruns its deadline; one thread, not a timer for every wait."""

    def __init__(self, cancel: Callable[[], object]) -> None:
        self.has_fired = False
        self._cancel = cancel
        self._due_s = math.inf
        self._wake = threading.Event()
        self._is_asleep = True
        self._sleeps_until_s = math.inf
        self._is_closed = False
        self._thread = threading.Thread(target=self._run, name="grpc-deadline", daemon=True)
        self._thread.start()

    def arm(self, deadline_s: float) -> None:
        self._due_s = time.monotonic() + deadline_s
        if self._is_asleep or self._due_s < self._sleeps_until_s:
            self._wake.set()

    def disarm(self) -> None:
        self._due_s = math.inf

    def close(self) -> None:
        self._is_closed = True
        self._wake.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._is_closed:
            self._is_asleep = True  # before looking: whoever arms after the look wakes this thread
            now_s = time.monotonic()  # first: what is disarmed in time is never too late
            due_s = self._due_s
            left_s = due_s - now_s
            if left_s <= 0:
                self.has_fired = True
                self._cancel()
                return
            self._sleeps_until_s = due_s
            if left_s < math.inf:
                self._is_asleep = False  # a later deadline needs no waking
            self._wake.wait(None if left_s == math.inf else min(left_s, threading.TIMEOUT_MAX))
            self._wake.clear()

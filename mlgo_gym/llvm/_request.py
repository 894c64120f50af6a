"""Requests to a worker, in one form for both ends, and messages that clone its process.

A frame is a JSON object and, optionally, raw bytes::

    uint32 length of the JSON, big-endian | uint32 length of the bytes | JSON | bytes

Nothing is unpickled; the parent takes in no more than the lengths allow. A request's fields are a
JSON object, ``op`` saying which one it is, and the module's bytes follow. The compiler's ends of
its channels are attached to its first bytes (``SCM_RIGHTS``), and take the places that the
greeting has named. One is served after the other; only a cancellation may come while another is
served, and only what became of answers in the worker is told meanwhile. Nothing of LLVM is imported
here.

To clone the process is asked beside that, on the control socket, since LLVM is in the middle of a
compilation then: one message with, for each descriptor that the clone gets, the number that it
takes the place of, an ``int32``; the descriptors themselves are attached (``SCM_RIGHTS``). Then
comes `FORK_SIGNAL`. The answer comes from the clone, over the control socket that it has been
given: its process id, an ``int32``. The end of that socket instead says that there is no clone,
whatever became of the worker. All in native byte order.

The zygote (`llvm._zygote`) is asked for a worker in one message: the settings, as JSON,
with four descriptors attached, the worker's standard input and error and its sockets for frames and
for forks. The worker answers at the last: its process id and the numbers that the two sockets have
there. The end of that socket instead says that there is none.
"""

from __future__ import annotations

import json
import platform
import signal
import struct
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from types import MappingProxyType
from typing import Any, Final

from mlgo_gym.base import InternalError
from mlgo_gym.llvm._target import Target, check_llvm_options
from mlgo_gym.llvm._task import Task

MAX_JSON_BYTES: Final = 1 << 26
MAX_PAYLOAD_BYTES: Final = (1 << 32) - 1
MAX_ANSWERERS: Final = 16
"""How many policies a worker holds; the one that was loaded first goes first."""
MAX_CHANNELS: Final = 8
"""How many problems LLVM can ask about over one request; a channel has two descriptors."""

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
        """The next whole frame, or ``None`` where more bytes are needed first."""
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


@dataclass(frozen=True, slots=True)
class NativeObject:
    """An object file for one CPU, with LLVM's own names of it; the CPU's may say its features."""

    data: bytes
    cpu: str
    features: str
    triple: str
    llvm_version: str


@dataclass(frozen=True, slots=True)
class Asking:
    """A problem that LLVM asks about.

    Attributes:
        base: of the names of its channel's ends.
        answerer: the key of who answers in the worker, or ``""``.
        keeps: what was asked and answered there is told afterwards.
        derives: the features of the call site that are sent besides LLVM's.
    """

    base: str
    answerer: str
    keeps: bool
    derives: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CompileRequest:
    """Compile a module; if forkable, the worker may be cloned.

    Attributes:
        plain_options: the problems' own, under which LLVM asks nothing.
        llvm_options: what was chosen, by whomever.
        advisor_options: the problems' own, under which LLVM asks.
        symbols: where in the library of LLVM that is which they are read by, from its start.

    Raises:
        OptionsError: something was chosen that LLVM is not given.
    """

    is_text: bool
    verify: bool
    is_forkable: bool
    target: Target
    task: Task
    keep_object: bool
    plain_options: tuple[str, ...]
    llvm_options: tuple[str, ...]
    advisor_options: tuple[str, ...] = ()
    asking: tuple[Asking, ...] = ()
    symbols: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_llvm_options(self.llvm_options)


@dataclass(frozen=True, slots=True)
class LoadRequest:
    """Load who answers in the worker (`mlgo_gym.problems._policy.SentPolicy`); bytes follow.

    What answers one compilation goes with it. The options are the problems' own, under which LLVM
    asks nothing.
    """

    key: str
    about: Mapping[str, Any]
    is_for_once: bool
    plain_options: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DescribeRequest:
    """Tell the bodies and the profile of a module, as it is; its counts, too, if asked for."""

    is_text: bool
    counts: bool = False


@dataclass(frozen=True, slots=True)
class SymbolsRequest:
    """Tell which functions a module defines and which it needs, as it is."""

    is_text: bool


@dataclass(frozen=True, slots=True)
class LocalizeRequest:
    """Make inline functions of a module local, as it is (`llvm.inside._local`).

    Attributes:
        shared: hashes of the functions that stay, since other modules have or need them.
        is_exported: whether only hidden functions change.
        symbols: as in `CompileRequest`.
    """

    is_text: bool
    shared: tuple[str, ...]
    is_exported: bool
    symbols: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class SplitRequest:
    """Optimise a module and make one of each of its functions; options as in `CompileRequest`."""

    is_text: bool
    target: Target
    minimum_instructions: int
    plain_options: tuple[str, ...]
    llvm_options: tuple[str, ...]

    def __post_init__(self) -> None:
        check_llvm_options(self.llvm_options)


@dataclass(frozen=True, slots=True)
class NativeRequest:
    """Compile the text of code of ours at -O3; options as in `LoadRequest`.

    Attributes:
        cpu: LLVM's name of a CPU; ``None`` is this machine's, or of another triple the generic one.
        triple: of another machine.
    """

    cpu: str | None
    triple: str | None
    plain_options: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CancelRequest:
    """Come to an end with what is being compiled, without generating code."""


WorkRequest = (
    CompileRequest
    | LoadRequest
    | DescribeRequest
    | SymbolsRequest
    | LocalizeRequest
    | SplitRequest
    | NativeRequest
)
Request = WorkRequest | CancelRequest

_KINDS: Final[Mapping[str, type[Request]]] = MappingProxyType(
    {
        "compile": CompileRequest,
        "load": LoadRequest,
        "describe": DescribeRequest,
        "symbols": SymbolsRequest,
        "localize": LocalizeRequest,
        "split": SplitRequest,
        "native": NativeRequest,
        "cancel": CancelRequest,
    }
)
_NESTED: Final[Mapping[str, type[Target | Task | Asking]]] = MappingProxyType(
    {"target": Target, "task": Task, "asking": Asking}
)


def request_to_json(request: Request) -> dict[str, Any]:
    """A request as JSON values.

    >>> request_to_json(DescribeRequest(is_text=True))
    {'op': 'describe', 'is_text': True, 'counts': False}
    """
    op = next(op for op, kind in _KINDS.items() if isinstance(request, kind))
    return {"op": op} | asdict(request)


def request_from_json(value: Mapping[str, Any]) -> Request:
    """The request that `request_to_json` was given.

    Raises:
        OptionsError: it asks for what LLVM is not given: the worker's own door.
        InternalError: it is no request.

    >>> request_from_json({"op": "cancel"})
    CancelRequest()
    """
    kind = _KINDS.get(value.get("op", ""))
    if kind is None:
        raise InternalError(f"request: expected one of {', '.join(_KINDS)}, found {value!r}")
    try:
        return kind(**_fields({name: each for name, each in value.items() if name != "op"}))
    except TypeError as error:
        raise InternalError(f"request: {error}") from error


def _fields(value: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _field(name, each) for name, each in value.items()}


def _field(name: str, value: Any) -> Any:
    if isinstance(value, list):
        return tuple(_field(name, each) for each in value)
    return _NESTED[name](**_fields(value)) if name in _NESTED else value


FORK_SIGNAL: Final = signal.SIGUSR2
MAX_DESCRIPTORS: Final = 16
"""How many descriptors a message that asks for a clone may carry."""

WORKER_ANSWER: Final = struct.Struct("=iii")
MAX_SETTINGS_BYTES: Final = 1 << 16
LATE: Final = ("MLGO_", "PIP_", "PYTEST_", "XDG_", "TMPDIR")
"""Variables, by their first letters, that nothing reads while a worker loads: each gets its own."""
ZYGOTE_NAME, WORKER_NAME = "mlgo-zygote", "mlgo-worker"
"""The kernel's names of the processes (``/proc/PID/comm``), whose command lines are the same."""

_CLONE_NUMBERS: Final = {"x86_64": 56, "aarch64": 220}
"""``__NR_clone`` of Linux; with a new stack of null, its other arguments have one order."""


def can_fork() -> bool:
    """Whether compilations can be forked on this platform: Linux on x86-64 and AArch64."""
    return sys.platform == "linux" and platform.machine() in _CLONE_NUMBERS


def clone_number() -> int:
    """The number of the system call on this platform, one where `can_fork`."""
    if not can_fork():
        raise InternalError(f"fork: {sys.platform} on {platform.machine()} is not supported")
    return _CLONE_NUMBERS[platform.machine()]

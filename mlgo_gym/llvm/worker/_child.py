"""The program of a worker process: LLVM, one request after the other, in one thread.

The parent hands over a socket for frames (`llvm._request`) and, as standard input, a pipe
that it never writes to. When the parent dies, however it dies, that pipe hangs up and the kernel
ends this process by SIGIO, even inside a compilation: an orphan would read end-of-file as advice
for ever. Standard output goes to standard error, so nothing that LLVM prints can garble frames.
"""

from __future__ import annotations

import array  # noqa: F401 - what receives descriptors imports it when it does
import contextlib
import fcntl
import functools
import json
import os
import resource
import signal
import socket
import sys
from collections.abc import Mapping
from dataclasses import astuple, dataclass
from typing import Any, Final, NoReturn

from mlgo_gym.base import EnvironmentSetupError, OptionsError
from mlgo_gym.llvm._limits import Limits
from mlgo_gym.llvm._request import (
    MAX_ANSWERERS,
    MAX_CHANNELS,
    CancelRequest,
    CompileRequest,
    DescribeRequest,
    FrameDecoder,
    LoadRequest,
    LocalizeRequest,
    NativeRequest,
    SplitRequest,
    SymbolsRequest,
    WorkRequest,
    can_fork,
    encode_frame,
    request_from_json,
)
from mlgo_gym.llvm._task import COMPILE
from mlgo_gym.llvm.inside._call_site import CallSite
from mlgo_gym.llvm.inside._fork_handler import ForkHandler
from mlgo_gym.llvm.inside._interposer import can_interpose
from mlgo_gym.llvm.inside._library import loaded_at, put
from mlgo_gym.llvm.inside._live_range import FEATURE, LiveRanges
from mlgo_gym.llvm.inside._sites import Sites
from mlgo_gym.llvm.worker import _binding as binding
from mlgo_gym.llvm.worker._answers import Answerer, answerer_of
from mlgo_gym.llvm.worker._besides import Knows, besides_of
from mlgo_gym.llvm.worker._inside import Conversation, Inside, words_of
from mlgo_gym.llvm.worker._products import (
    PRODUCTS,
    Answer,
    Estimates,
    describe,
    localize,
    native,
    split,
    symbols,
)
from mlgo_gym.stream import is_readable

_RECEIVE_BYTES: Final = 1 << 20


def main(
    socket_fd: int,
    control_fd: int,
    functions_fd: int,
    level_offset: int,
    limited: tuple[float, float],
) -> NoReturn:
    """Load all that Python and LLVM load, and what functions import that are to answer here.

    A file has the functions. The offset is that of LLVM's level O1 in its library, or 0
    (`binding.optimize`).
    """
    die_with_parent()
    session = binding.Session()
    with os.fdopen(functions_fd, "rb") as file:
        raised = _imported(file.read())
    level_address = level_address_of(level_offset)
    limits = Limits(*limited)
    serve(session, socket_fd, control_fd, limits, level_address=level_address, raised=raised)


def level_address_of(offset: int) -> int:
    """Return the address of LLVM's level O1 in this process, or 0 where it is not known."""
    start = loaded_at()
    return start + offset if start and offset else 0


def addresses_of(symbols: Mapping[str, int]) -> dict[str, int]:
    """Return where symbols are in this process, by their places in llvmlite's library.

    Raises:
        EnvironmentSetupError: it is not known where that is loaded.
    """
    if not (start := loaded_at()):
        raise EnvironmentSetupError("expected to be told where llvmlite is loaded, found 0")
    return {name: start + offset for name, offset in symbols.items()}


def serve(
    session: binding.Session,
    socket_fd: int,
    control_fd: int,
    limits: Limits,
    *,
    level_address: int,
    raised: str = "",
    native: Native | None = None,
) -> NoReturn:
    """Serve requests from the socket until it is closed; the control socket asks to fork.

    All is loaded before the limits hold: no file can be read any more.
    """
    with socket.socket(fileno=socket_fd) as parent:
        versions = {"llvm": binding.embedded_version(), "llvmlite": binding.llvmlite_version()}
        places = _Places()
        about = {"versions": versions, "places": places.numbers, "rss_bytes": _rss_bytes()}
        about |= {"raised": raised} if raised else {}
        parent.sendall(encode_frame(about | {"sandbox": astuple(limits.hold())}))
        code = native or Native()
        server = _Server(
            parent, session, control_fd, limits, places, level_address=level_address, native=code
        )
        while (frame := server.receive()) is not None:
            server.serve(*frame)
        sys.stderr.flush()
        os._exit(0)  # to take Python and LLVM apart takes longer than many a compilation


@dataclass
class Native:
    """Code that goes into LLVM's process, compiled when it is first needed, or before."""

    fork_handler: ForkHandler | None = None
    inside: Inside | None = None

    @classmethod
    def compile(cls, control_fd: int) -> Native:
        """All of it; no option of LLVM's may hold under which it asks or ends early."""
        return cls(ForkHandler(control_fd), Inside() if can_interpose() else None)


class _Server:
    def __init__(
        self,
        parent: socket.socket,
        session: binding.Session,
        control_fd: int,
        limits: Limits,
        places: _Places,
        *,
        level_address: int,
        native: Native,
    ) -> None:
        self._parent = parent
        self._level_address = level_address
        self._limits = limits
        self._places = places
        self._control_fd = control_fd
        self._native = native
        self._fork_handler: ForkHandler | None = None
        self._inside: Inside | None = None
        self._knows: Final = Knows()
        self._answerers: dict[str, Answerer] = {}
        self._once: dict[str, Answerer] = {}
        self._session = session
        self._estimates = Estimates(session)
        self._decoder = FrameDecoder()

    def receive(self) -> tuple[dict[str, Any], bytes] | None:
        while (frame := self._decoder.next_frame()) is None:
            data, descriptors, *_ = socket.recv_fds(
                self._parent, _RECEIVE_BYTES, len(self._places.numbers)
            )
            self._places.fill(descriptors)
            if not data:
                return None
            self._decoder.feed(data)
        return frame

    def serve(self, message: dict[str, Any], data: bytes) -> None:
        self._limits.allow_cpu()
        try:
            request = request_from_json(message)
            if isinstance(request, CancelRequest):  # it came after the end
                return
            answer, payload = self._answer(request, data)
        except (binding.BitcodeError, OptionsError) as error:
            answer, payload = {"error": str(error)}, b""
        except EnvironmentSetupError as error:
            answer, payload = {"unusable": str(error)}, b""
        self._places.empty()
        self._parent.sendall(encode_frame(answer | {"rss_bytes": _rss_bytes()}, payload))

    def _answer(self, request: WorkRequest, data: bytes) -> Answer:
        match request:
            case CompileRequest():
                answer = self._compile(request, data)
            case LoadRequest():
                answer = self._load(request, data)
            case DescribeRequest():
                answer = describe(request, data)
            case SymbolsRequest():
                answer = symbols(request, data)
            case LocalizeRequest():
                answer = localize(request, data, addresses_of(request.symbols))
            case SplitRequest():
                own = (*request.plain_options, *COMPILE.llvm_options())
                self._set_options((*own, *request.llvm_options))
                answer = split(request, data, self._level_address)
            case NativeRequest():
                self._set_options((*request.plain_options, *COMPILE.llvm_options()))
                answer = native(request, data)
        return answer

    def _set_options(self, options: tuple[str, ...]) -> None:
        """Set LLVM's options: those of an earlier request must not hold for this one."""
        self._session.undo_targets()
        self._session.set_options(options)

    def _load(self, request: LoadRequest, data: bytes) -> Answer:
        self._set_options((*request.plain_options, *COMPILE.llvm_options()))
        try:
            made = answerer_of(request.about, data, self._answerers)
        except binding.BitcodeError:
            raise
        except BaseException as error:  # noqa: BLE001 - it is anybody's code
            return {"raised": words_of(error)}, b""
        self._answerers.pop(request.key, None)
        (self._once if request.is_for_once else self._answerers)[request.key] = made
        while len(self._answerers) > MAX_ANSWERERS:
            del self._answerers[next(iter(self._answerers))]
        return {"loaded": list(self._answerers)}, b""

    def _prepare(self, request: CompileRequest) -> None:
        """Compile what the process needs for such a request, once, while LLVM asks nothing."""
        forks = request.is_forkable and self._fork_handler is None and can_fork()
        takes = bool(request.asking) and self._inside is None and can_interpose()
        if forks or takes or request.symbols:
            self._set_options((*request.plain_options, *COMPILE.llvm_options()))
        if forks:
            handler = self._native.fork_handler
            if handler is None or handler.control != self._control_fd:
                handler = ForkHandler(self._control_fd)
            handler.install()
            self._fork_handler = handler
        if takes:
            self._inside = self._native.inside or Inside()
            self._inside.install(self._tell)
        if request.symbols:
            self._look_inside(request)

    def _look_inside(self, request: CompileRequest) -> None:
        """Make what tells of calls and live ranges, as far as a request needs it."""
        addresses = addresses_of(request.symbols)
        derived = {name for each in request.asking for name in each.derives}
        knows = self._knows
        if not knows.call_site and (request.task.knows_calls or derived - {FEATURE}):
            knows.call_site = CallSite(addresses, put)
        if not knows.sites and knows.call_site and request.task.sites:
            knows.sites = Sites(addresses)
        if not knows.live_ranges and (request.task.left or FEATURE in derived):
            knows.live_ranges = LiveRanges(addresses, put)

    def _tell(self, message: dict[str, Any], data: bytes) -> None:
        """Say something in the middle of a compilation."""
        self._parent.sendall(encode_frame(message | {"rss_bytes": _rss_bytes()}, data))

    def _compile(self, request: CompileRequest, data: bytes) -> Answer:
        self._prepare(request)
        if self._inside is None or not request.asking:
            return self._product(request, data)
        asked = [
            Conversation(
                os.fsencode(each.base),
                self._once.get(each.answerer) or self._answerers.get(each.answerer),
                each.keeps,
                besides_of(self._knows, each.derives, request.task),
            )
            for each in request.asking
        ]
        self._once.clear()
        self._inside.begin(asked)
        try:
            answer, product = self._product(request, data)
            told, answered = self._inside.answered()
            return answer | {"inside": told}, product + answered
        finally:
            self._inside.end()

    def _product(self, request: CompileRequest, data: bytes) -> Answer:
        own = (*request.plain_options, *request.advisor_options, *request.task.llvm_options())
        self._set_options((*own, *request.llvm_options))
        with binding.parse(data, is_text=request.is_text, verify=request.verify) as module:
            before = self._estimates.before(module, data) if request.task.estimates else {}
            level = request.target.opt_level or ""
            if request.task.sites and self._knows.sites:
                self._knows.sites.mark(binding.address(module), debug_info=request.task.debug_info)
            if request.task.optimize:
                level = binding.optimize(module, request.target, self._level_address)
            if self._knows.live_ranges:
                left = binding.function_addresses(module, request.task.left)
                self._knows.live_ranges.leave(left)
            if self._is_cancelled():
                return {"cancelled": True}, b""
            again = binding.to_bitcode(module) if request.task.estimates else b""
            answer, product = PRODUCTS[request.task.product](module, request, level)
            if again:
                assembly = self._estimates.assembly(again, request, level)
                answer |= {"assembly_bytes": len(assembly), **before}
                product = assembly + product
        return {"opt_level": level} | answer, product

    def _is_cancelled(self) -> bool:
        # While a compilation runs the parent sends nothing but its cancellation.
        return self._decoder.next_frame() is not None or is_readable(self._parent.fileno(), 0)


def _imported(data: bytes) -> str:
    """Import what functions need that will answer here; what one of them raised, in words."""
    try:
        for about, source in json.loads(data):
            answerer_of(about, source.encode(), {})
    except BaseException as error:  # noqa: BLE001 - it is anybody's code
        return words_of(error)
    return ""


class _Places:
    """Descriptors whose numbers the parent knows: the ends of a request's channels."""

    def __init__(self) -> None:
        self._nothing = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        self.numbers = [os.dup(self._nothing) for _ in range(2 * MAX_CHANNELS)]

    def fill(self, descriptors: list[int]) -> None:
        """Put these there, in their order."""
        for descriptor, place in zip(descriptors, self.numbers, strict=False):
            os.dup2(descriptor, place, inheritable=False)
            os.close(descriptor)

    def empty(self) -> None:
        """Close what is there; LLVM has closed its own."""
        for place in self.numbers:
            os.dup2(self._nothing, place, inheritable=False)


def die_with_parent() -> None:
    """Have the kernel end this process when its standard input hangs up."""
    lifeline = sys.stdin.fileno()
    signal.signal(signal.SIGIO, signal.SIG_DFL)
    fcntl.fcntl(lifeline, fcntl.F_SETOWN, os.getpid())
    flags = fcntl.fcntl(lifeline, fcntl.F_GETFL)
    fcntl.fcntl(lifeline, fcntl.F_SETFL, flags | os.O_ASYNC)
    if is_readable(lifeline, 0):  # it died before this took effect
        sys.exit(1)


@functools.cache
def _statm() -> tuple[int, int]:
    """This process's id and its counts of pages, opened while files can be."""
    with contextlib.suppress(OSError):
        return os.getpid(), os.open("/proc/self/statm", os.O_RDONLY | os.O_CLOEXEC)
    return 0, -1


def _rss_bytes() -> int:
    """Resident memory now; in a branch, or where none is told, the most there ever was."""
    pid, descriptor = _statm()
    if pid == os.getpid():
        return int(os.pread(descriptor, 256, 0).split()[1]) * resource.getpagesize()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024

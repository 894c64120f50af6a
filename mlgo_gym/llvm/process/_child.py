"""What a worker process runs: LLVM, one request after the other, in a single thread.

The parent hands over a socket for frames (`llvm.process._frames`) and, as standard input, a pipe
that it never writes to. When the parent dies, however it dies, that pipe hangs up and the kernel
ends this process by SIGIO, even inside a compilation: an orphan would read end-of-file as advice
for ever. Standard output goes to standard error, so nothing that LLVM prints can garble frames.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import resource
import select
import signal
import socket
import sys
from pathlib import Path
from typing import Any, Final

from mlgo_gym.llvm.process import _binding as binding
from mlgo_gym.llvm.process._answers import INQUIRIES
from mlgo_gym.llvm.process._fork_handler import ForkHandler
from mlgo_gym.llvm.process._fork_request import is_supported
from mlgo_gym.llvm.process._frames import FrameDecoder, encode_frame

_RECEIVE_BYTES = 1 << 20


def main(socket_fd: int, control_fd: int) -> None:
    """Serve requests from the socket until it is closed; the control socket asks to fork."""
    _die_with_parent()
    with socket.socket(fileno=socket_fd) as parent:
        session = binding.Session()
        versions = {"llvm": binding.llvm_version(), "llvmlite": binding.llvmlite_version()}
        parent.sendall(encode_frame({"versions": versions, "rss_bytes": _rss_bytes()}))
        server = _Server(parent, session, control_fd)
        while (request := server.receive()) is not None:
            server.serve(*request)


class _Server:
    def __init__(self, parent: socket.socket, session: binding.Session, control_fd: int) -> None:
        self._parent = parent
        self._control_fd = control_fd
        self._fork_handler: ForkHandler | None = None
        self._session = session
        self._decoder = FrameDecoder()

    def receive(self) -> tuple[dict[str, Any], bytes] | None:
        while (frame := self._decoder.next_frame()) is None:
            data = self._parent.recv(_RECEIVE_BYTES)
            if not data:
                return None
            self._decoder.feed(data)
        return frame

    def serve(self, request: dict[str, Any], data: bytes) -> None:
        answers = {"compile": self._compile, **INQUIRIES}
        if request["op"] not in answers:  # a cancellation that came after the end
            return
        try:
            answer, payload = answers[request["op"]](request, data)
        except binding.BitcodeError as error:
            answer, payload = {"error": str(error)}, b""
        self._parent.sendall(encode_frame(answer | {"rss_bytes": _rss_bytes()}, payload))

    def _compile(self, request: dict[str, Any], data: bytes) -> tuple[dict[str, Any], bytes]:
        if request["is_forkable"] and self._fork_handler is None and is_supported():
            # What an earlier compilation has set must not hold for the handler's own code.
            self._session.set_options(request["plain_options"])
            self._fork_handler = ForkHandler(self._control_fd)
        self._session.set_options(request["llvm_options"])
        target = binding.Target(**request["target"])
        with binding.parse(data, is_text=request["is_text"], verify=request["verify"]) as module:
            level = target.opt_level or ""
            if request["task"]["optimize"]:
                level = binding.optimize(module, target)
            if self._is_cancelled():
                return {"cancelled": True}, b""
            answer, product = _PRODUCTS[request["task"]["product"]](module, target, level, request)
        return {"opt_level": level} | answer, product

    def _is_cancelled(self) -> bool:
        # While a compilation runs the parent sends nothing but its cancellation.
        return self._decoder.next_frame() is not None or bool(
            select.select([self._parent], [], [], 0)[0]
        )


def _object(
    module: Any, target: binding.Target, level: str, request: dict[str, Any]
) -> tuple[dict[str, Any], bytes]:
    output = binding.emit_object(module, target, level)
    answer = {
        "sections": binding.section_sizes(output),
        "object_sha256": hashlib.sha256(output).hexdigest(),
    }
    return answer, output if request["keep_object"] else b""


def _bitcode(module: Any, *_: Any) -> tuple[dict[str, Any], bytes]:
    return {}, binding.to_bitcode(module)


def _text(
    module: Any, target: binding.Target, level: str, _: dict[str, Any]
) -> tuple[dict[str, Any], bytes]:
    return {}, binding.emit_text(module, target, level)


def _functions(
    module: Any, _target: binding.Target, _level: str, request: dict[str, Any]
) -> tuple[dict[str, Any], bytes]:
    modules = binding.extract_functions(module, request["task"]["functions"])
    return {"sizes": [len(each) for each in modules]}, b"".join(modules)


_PRODUCTS: Final = {
    "object": _object,
    "bitcode": _bitcode,
    "assembly": _text,
    "machine code": _text,
    "functions": _functions,
}
"""What makes each product of `mlgo_gym.llvm.Task`."""


def _die_with_parent() -> None:
    lifeline = sys.stdin.fileno()
    signal.signal(signal.SIGIO, signal.SIG_DFL)
    fcntl.fcntl(lifeline, fcntl.F_SETOWN, os.getpid())
    flags = fcntl.fcntl(lifeline, fcntl.F_GETFL)
    fcntl.fcntl(lifeline, fcntl.F_SETFL, flags | os.O_ASYNC)
    if select.select([lifeline], [], [], 0)[0]:  # it died before this took effect
        sys.exit(1)


def _rss_bytes() -> int:
    """Resident memory now; where the system does not tell, the most there ever was."""
    with contextlib.suppress(OSError):
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
        return pages * resource.getpagesize()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024

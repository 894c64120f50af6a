"""The zygote's program: it loads all that a worker needs, and clones itself when asked.

It holds itself to nothing, as each worker does after the clone, so that each has a domain of
Landlock's of its own: of one that they shared, one worker could signal the others, and the zygote.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import socket
from pathlib import Path
from typing import Any, Final

from mlgo_gym.base import InternalError
from mlgo_gym.llvm._limits import Limits
from mlgo_gym.llvm._request import (
    LATE,
    MAX_SETTINGS_BYTES,
    WORKER_ANSWER,
    WORKER_NAME,
    ZYGOTE_NAME,
    clone_number,
)
from mlgo_gym.llvm.worker import _binding as binding
from mlgo_gym.llvm.worker._child import Native, die_with_parent, level_address_of, serve

_CLONE_PARENT_SIGCHLD: Final = 0x8011
_PR_SET_NAME: Final = 15
_SEVERAL: Final = 2


def main(socket_fd: int, level_offset: int) -> None:
    """Clone this process for each message at the socket, until it is closed.

    The offset is that of LLVM's level O1 in its library, or 0.
    """
    zygote = Zygote()
    level_address = level_address_of(level_offset)
    if asked := zygote.clones(socket_fd):
        worker = become_worker(*asked)
        serve(zygote.session, *worker, level_address=level_address, native=zygote.native)


class Zygote:
    """The zygote's state, which its clones share.

    Attributes:
        session: LLVM's.
        native: code that each of them would have to compile.

    Raises:
        InternalError: it has several threads, a clone would have one of them.
    """

    def __init__(self) -> None:
        _call_it(ZYGOTE_NAME)
        self.session: Final = binding.Session()
        self.native = Native()
        if (threads := len(list(Path("/proc/self/task").iterdir()))) > 1:
            raise InternalError(f"zygote: expected one thread, found {threads}")
        _freeze()

    def clones(self, socket_fd: int) -> tuple[dict[str, Any], list[int]] | None:
        """Clone for each message at a socket; in a clone, its settings and descriptors."""
        made = 0
        with socket.socket(fileno=socket_fd) as host:
            while True:
                data, descriptors, *_ = socket.recv_fds(host, MAX_SETTINGS_BYTES, 4)
                if not data:
                    return None
                if _clone() == 0:
                    return json.loads(data), descriptors
                for each in descriptors:
                    os.close(each)
                made += 1
                if made == _SEVERAL:  # more will follow, whose sockets have these numbers
                    self.native = Native.compile(descriptors[-1])
                    _freeze()


def become_worker(settings: dict[str, Any], descriptors: list[int]) -> tuple[int, int, Limits]:
    """Take on an environment, limits and descriptors; its two sockets, and the limits to hold."""
    lifeline, standard_error, frames, control = descriptors
    _call_it(WORKER_NAME)
    os.setsid()
    for descriptor, place in ((lifeline, 0), (standard_error, 2)):
        os.dup2(descriptor, place)
        os.close(descriptor)
    die_with_parent()
    os.write(control, WORKER_ANSWER.pack(os.getpid(), frames, control))
    for name in [each for each in os.environ if each.startswith(LATE)]:
        del os.environ[name]
    os.environ |= settings["environment"]
    return frames, control, Limits(*settings["limits"])


def _clone() -> int:
    """Fork as ``os.fork`` does, into a sibling of this process; -1 where that fails."""
    python, libc = ctypes.pythonapi, ctypes.PyDLL(None)
    libc.syscall.restype = ctypes.c_long
    arguments = [
        ctypes.c_long(each) for each in (clone_number(), _CLONE_PARENT_SIGCHLD, 0, 0, 0, 0)
    ]
    python.PyOS_BeforeFork()
    pid: int = libc.syscall(*arguments)
    if pid == 0:
        python.PyOS_AfterFork_Child()
    else:
        python.PyOS_AfterFork_Parent()
    return pid


def _freeze() -> None:
    """Have no collection write to the objects that there are, and so copy their pages."""
    gc.collect()
    gc.freeze()


def _call_it(name: str) -> None:
    ctypes.CDLL(None).prctl(_PR_SET_NAME, name.encode(), 0, 0, 0)

"""A zygote whose forks run a stranger's code, in place of requests, and say what became of it."""

from __future__ import annotations

import ctypes
import json
import os
import random
import socket

from mlgo_gym.llvm.worker._zygote_child import Zygote, become_worker
from tests.llvm.process.hostile import outcome, outcomes

_TGKILL = {"x86_64": 234, "aarch64": 131}[os.uname().machine]
_SIGTERM = 15


def main(socket_fd: int, level_offset: int) -> None:
    """Begin as a zygote begins; each fork then does its worst."""
    del level_offset
    zygote = Zygote()
    pid = os.getpid()
    if asked := zygote.clones(socket_fd):
        frames, _, limits = become_worker(*asked)
        with socket.socket(fileno=frames) as host:
            limits.hold()
            told = outcomes(zygote.session, os.environ["TMPDIR"]) | {
                "signal the zygote": outcome(lambda: _signal(pid)),
                "signal a sibling": outcome(lambda: _signal(int(os.environ["MLGO_SIBLING"]))),
            }
            about = {"random": random.random(), "pid": os.getpid(), "variables": [*os.environ]}  # noqa: S311
            host.sendall(json.dumps([told, about]).encode())
            host.recv(1)
        os._exit(0)


def _signal(pid: int) -> None:
    """By the one call that may send a signal."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.syscall(_TGKILL, pid, pid, _SIGTERM):
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))

"""Forking a compilation at a pending decision: this process's part.

The worker is cloned by `llvm.inside._fork_handler` while LLVM waits for advice. The clone is a
child of this process, a worker like any other, with sockets, pipes and a channel of its own. Where
that cannot work, a new worker compiles the module again up to the same decision.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import struct
from typing import Final
from weakref import WeakSet

from mlgo_gym.base import OptionsError, UsageError
from mlgo_gym.llvm._launch import (
    BranchProcess,
    Link,
    connected_pipe,
    connected_sockets,
)
from mlgo_gym.llvm._request import FORK_SIGNAL, can_fork
from mlgo_gym.llvm._worker_process import Worker
from mlgo_gym.stream import Channel

DEFAULT_BRANCH_LIMIT: Final = 64
_ANSWER: Final = struct.Struct("=i")
_LIFELINE: Final = 0
_STANDARD_ERROR: Final = 2
_SHORTEST_TIMEOUT_S: Final = 0.001
_LONGEST_TIMEOUT_S: Final = 3600.0


class ForkRefusedError(Exception):
    """The worker cannot be forked here; the message says why."""


class Branches:
    """The live branches of one compiler, and how they are made."""

    def __init__(self, limit: int = DEFAULT_BRANCH_LIMIT, *, by_replay: bool = False) -> None:
        if not isinstance(limit, int) or limit < 1:
            raise OptionsError(f"branch_limit: expected a whole number above 0, found {limit!r}")
        self.limit: Final = limit
        self.by_replay: Final = by_replay
        self._workers: WeakSet[Worker] = WeakSet()

    def make_room(self, module: str) -> None:
        """Raise where there are as many branches as there may be."""
        live = sum(not worker.is_reaped for worker in self._workers)
        if live >= self.limit:
            raise UsageError(
                f"module {module!r}: expected fewer than {self.limit} live branches before a "
                f"fork, found {live}; close one, or raise branch_limit"
            )

    def add(self, worker: Worker) -> None:
        """Count a branch's worker for as long as it lives."""
        self._workers.add(worker)


def fork_worker(worker: Worker, channel: Channel, timeout_s: float) -> tuple[Worker, Channel]:
    """Clone a forkable worker that waits for advice, all taken in; a timeout leaves it unusable."""
    if not can_fork():
        raise ForkRefusedError("this platform is neither Linux on x86-64 nor on AArch64")
    compilers_ends = channel.compilers_ends(worker.pid)
    if compilers_ends is None:
        raise ForkRefusedError(f"/proc/{worker.pid}/fd does not show the channel")
    with contextlib.ExitStack() as ours:
        with contextlib.ExitStack() as theirs:
            branch, channel_ends = channel.branch()
            ours.callback(branch.close)
            for descriptor in channel_ends:
                theirs.callback(os.close, descriptor)
            from_us, lifeline = connected_pipe(theirs, ours)
            standard_error, to_us = connected_pipe(ours, theirs)
            frames, childs_frames = connected_sockets(socket.SOCK_STREAM, ours, theirs)
            control, childs_control = connected_sockets(socket.SOCK_SEQPACKET, ours, theirs)
            places = {
                _LIFELINE: from_us,
                _STANDARD_ERROR: to_us,
                worker.link.numbers[0]: childs_frames.fileno(),
                worker.link.numbers[1]: childs_control.fileno(),
                compilers_ends[0]: channel_ends[0],
                compilers_ends[1]: channel_ends[1],
            }
            _ask(worker, places)
        pid = _cloned(worker, control, timeout_s)
        process = BranchProcess(
            pid, os.fdopen(lifeline, "wb", 0), os.fdopen(standard_error, "rb", 0)
        )
        ours.pop_all()
    return worker.branch(Link(process, frames, control, worker.link.numbers)), branch


def _ask(worker: Worker, places: dict[int, int]) -> None:
    """Have the worker cloned, with these descriptors of ours at those places."""
    if not worker.is_alive():
        raise worker.died()
    request = struct.pack(f"={len(places)}i", *places)
    try:
        socket.send_fds(worker.link.control, [request], list(places.values()))
    except (BrokenPipeError, ConnectionResetError) as error:
        raise worker.died() from error
    os.kill(worker.pid, FORK_SIGNAL)


def _cloned(worker: Worker, control: socket.socket, timeout_s: float) -> int:
    """The clone's process id, once it says so at its control socket."""
    control.settimeout(min(max(timeout_s, _SHORTEST_TIMEOUT_S), _LONGEST_TIMEOUT_S))
    try:
        answer = _received(control)
    except TimeoutError:
        worker.kill()
        control.settimeout(None)
        if answer := _received(control):  # it came after all, and is of no use any more
            pid = int(_ANSWER.unpack(answer)[0])
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        raise
    if answer:
        return int(_ANSWER.unpack(answer)[0])
    if worker.has_hung_up():
        raise worker.died()
    raise ForkRefusedError("the system refuses to clone the worker")


def _received(control: socket.socket) -> bytes:
    try:
        return control.recv(_ANSWER.size)
    except ConnectionResetError:  # closed with the request unread
        return b""

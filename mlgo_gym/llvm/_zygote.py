"""The zygote: a child that has loaded LLVM and waits, and whose forks are this process's workers.

To load Python and LLVM takes a worker most of its start. The zygote has done it once, and set no
option of LLVM's; it is started when the first worker is wanted and lives as long as this process.
Each worker is a clone of it, made with ``CLONE_PARENT``: a child of this process, as one that is
started anew is. It takes its own limits, environment and sandbox itself, after the clone, by the
same code (`llvm.worker._child`). The zygote sees nothing but what is sent here; a worker cannot
reach it (docs/explanation/threat-model.md).
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import resource
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from mlgo_gym.llvm._launch import (
    BranchProcess,
    Link,
    child_command,
    child_environment,
    connected_pipe,
    connected_sockets,
    limits_to_json,
    start_child,
)
from mlgo_gym.llvm._limits import Limits
from mlgo_gym.llvm._request import LATE, MAX_SETTINGS_BYTES, WORKER_ANSWER, can_fork
from mlgo_gym.llvm.inside._symbols import level_offset
from mlgo_gym.problems import SentPolicy

_MODULE: Final = "mlgo_gym.llvm.worker._zygote_child"
_LOADING_TIMEOUT_S: Final = 60.0
_FORK_TIMEOUT_S: Final = 10.0
_RESOURCES: Final = tuple(
    getattr(resource, name) for name in sorted(dir(resource)) if name.startswith("RLIMIT_")
)


def start_worker(limits: Limits, functions: Sequence[SentPolicy] = ()) -> Link:
    """Start a worker's child: a fork of the zygote where that does, else one that loads all anew.

    What functions import that are to answer there is imported before the sandbox closes, which the
    zygote cannot do for them.

    Raises:
        EnvironmentSetupError: no child can be started.
    """
    if functions or not can_fork():
        return start_child(limits, functions)
    return _ZYGOTES.fork(limits) or start_child(limits)


def zygote_pid() -> int | None:
    """The process id of this process's zygote, where it has one now."""
    zygote = _ZYGOTES.current
    return zygote.process.pid if zygote else None


def zygote_descriptor() -> int | None:
    """The one descriptor that this process has of its zygote, where it has one now."""
    zygote = _ZYGOTES.current
    return zygote.socket.fileno() if zygote else None


def end_zygote() -> None:
    """End this process's zygote, as its exit does; the next worker is a fork of another."""
    _ZYGOTES.end()


class _Zygote:
    """One such child.

    Attributes:
        fixed: what its forks have of it, and so must want.
        has_forked: it has loaded all that it loads.
    """

    def __init__(self, fixed: tuple[Any, ...]) -> None:
        self.fixed: Final = fixed
        self.has_forked = False
        with contextlib.ExitStack() as ours, contextlib.ExitStack() as theirs:
            own, other = connected_sockets(socket.SOCK_SEQPACKET, ours, theirs)
            own.settimeout(_FORK_TIMEOUT_S)
            self.process: Final = subprocess.Popen(
                child_command(_MODULE, f"{other.fileno()}, {level_offset()}"),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,  # whoever is started anew in its place says it
                pass_fds=(other.fileno(),),
                env=child_environment(),
                start_new_session=True,
            )
            ours.pop_all()
        self.socket: Final = own

    def ask(self, settings: bytes, descriptors: Sequence[int]) -> None:
        """Ask for a fork; to one that has died, an error."""
        flags = socket.MSG_NOSIGNAL  # whatever the caller has SIGPIPE do
        socket.send_fds(self.socket, [settings], descriptors, flags)

    def end(self) -> None:
        """Kill and reap it."""
        self.socket.close()
        self.process.kill()
        self.process.wait()

    def disown(self) -> None:
        """Let go of one that belongs to the process this one was forked from."""
        self.socket.close()
        self.process.returncode = 0  # not ours to wait for


class _Zygotes:
    """This process's ``current`` zygote, replaced when it has died or another is wanted."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.current: _Zygote | None = None

    def fork(self, limits: Limits) -> Link | None:
        """A new worker's child, or ``None`` where there can be no zygote."""
        settings = json.dumps({"limits": limits_to_json(limits), "environment": _late()}).encode()
        if len(settings) > MAX_SETTINGS_BYTES:
            return None
        for _ in range(2):
            with contextlib.ExitStack() as ours:
                try:
                    zygote, kept = self._ask(settings, ours)
                except OSError:  # whoever starts one anew says why
                    return None
                has_forked = zygote.has_forked
                timeout_s = _FORK_TIMEOUT_S if has_forked else _LOADING_TIMEOUT_S
                if answer := _answer(kept.control, timeout_s):
                    zygote.has_forked = True
                    ours.pop_all()
                    return kept.link(answer)
                self._end(zygote)
                if late := _answer(kept.control, _FORK_TIMEOUT_S):
                    os.kill(late[0], signal.SIGKILL)
                    os.waitpid(late[0], 0)
                if not has_forked:  # nor would another
                    return None
        return None

    def _ask(self, settings: bytes, ours: contextlib.ExitStack) -> tuple[_Zygote, _Ends]:
        """Ask the zygote for a fork, or a new one where it has died or does not fit."""
        fixed = _fixed()
        with contextlib.ExitStack() as theirs:
            frames, childs_frames = connected_sockets(socket.SOCK_STREAM, ours, theirs)
            control, childs_control = connected_sockets(socket.SOCK_SEQPACKET, ours, theirs)
            from_us, lifeline = connected_pipe(theirs, ours)
            standard_error, to_us = connected_pipe(ours, theirs)
            sent = [from_us, to_us, childs_frames.fileno(), childs_control.fileno()]
            kept = _Ends(frames, control, lifeline, standard_error)
            with self._lock:
                zygote = self.current
                if zygote and zygote.fixed == fixed:
                    with contextlib.suppress(OSError):  # it has died
                        zygote.ask(settings, sent)
                        return zygote, kept
                zygote = _Zygote(fixed)
                self._end_current()
                self.current = zygote
                zygote.ask(settings, sent)
                return zygote, kept

    def _end(self, zygote: _Zygote) -> None:
        with self._lock:
            if self.current is zygote:
                self._end_current()

    def _end_current(self) -> None:
        if self.current:
            self.current.end()
        self.current = None

    def end(self) -> None:
        """End the zygote, if there is one; the next worker gets another."""
        with self._lock:
            self._end_current()

    def disown(self) -> None:
        """Let go of the zygote of the process that this one was forked from."""
        self._lock = threading.Lock()
        if self.current:
            self.current.disown()
        self.current = None


@dataclass(frozen=True, slots=True)
class _Ends:
    """This process's ends of the pipes and sockets that tie a worker to it."""

    frames: socket.socket
    control: socket.socket
    lifeline: int
    standard_error: int

    def link(self, answer: tuple[int, int, int]) -> Link:
        pid, *numbers = answer
        process = BranchProcess(
            pid, os.fdopen(self.lifeline, "wb", 0), os.fdopen(self.standard_error, "rb", 0)
        )
        return Link(process, self.frames, self.control, (numbers[0], numbers[1]))


def _answer(control: socket.socket, timeout_s: float) -> tuple[int, int, int] | None:
    """Return a new worker's answer; ``None`` where there is none."""
    control.settimeout(timeout_s)
    try:
        data = control.recv(WORKER_ANSWER.size)
    except (TimeoutError, ConnectionResetError):  # the latter: closed with the request unread
        return None
    finally:
        control.settimeout(None)
    return WORKER_ANSWER.unpack(data) if data else None


def _late() -> dict[str, str]:
    return {name: value for name, value in child_environment().items() if name.startswith(LATE)}


def _fixed() -> tuple[Any, ...]:
    """Return the properties that a process has from its start, or has read while it loads."""
    try:
        folder = os.getcwd()  # noqa: PTH109 - it may be gone
    except OSError:
        folder = ""
    return (
        sys.executable,
        [*sys.path],
        folder,
        {name: value for name, value in os.environ.items() if not name.startswith(LATE)},
        [resource.getrlimit(each) for each in _RESOURCES],
        (os.getresuid(), os.getresgid(), os.getgroups()),
        (os.getpriority(os.PRIO_PROCESS, 0), os.sched_getaffinity(0)),
        signal.pthread_sigmask(signal.SIG_BLOCK, ()),
    )


_ZYGOTES: Final = _Zygotes()

atexit.register(_ZYGOTES.end)
os.register_at_fork(after_in_child=_ZYGOTES.disown)

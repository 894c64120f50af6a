"""Child processes: with this Python, its llvmlite and its way to find modules, and what ties them.

A worker's child is a fork of the zygote (`llvm._zygote`), is started anew (`start_child`),
or branches off another in the middle of a compilation (`llvm._branches`). All have the same
link, so all are workers.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from importlib import metadata
from pathlib import Path
from typing import IO, Any, Final

from packaging.version import Version

from mlgo_gym.base import EnvironmentSetupError, InternalError
from mlgo_gym.llvm._limits import Limits
from mlgo_gym.llvm.inside._symbols import level_offset
from mlgo_gym.problems import SentPolicy
from mlgo_gym.stream import is_readable, open_bytes

MINIMUM_LLVMLITE: Final = "0.48"
"""The oldest llvmlite whose LLVM has the advisors as they are needed (LLVM 22)."""

LLVM_MAJOR: Final = 22
"""The major version of LLVM that features, options, opcodes and shipped models belong to."""

LLVMLITE: Final = f"llvmlite>={MINIMUM_LLVMLITE},<0.51"
"""The requirement for pip: versions that have been seen to embed this LLVM."""

_ANY_LLVM: Final = "MLGO_ANY_LLVM"
_MOST: Final = 1 << 62


def child_command(module: str, argument: str = "") -> list[str]:
    """A Python process that calls a module's ``main`` and finds modules just as this one does."""
    heed = "import signal, sys; signal.signal(signal.SIGCHLD, signal.SIG_DFL)"
    start = f"{heed}; sys.path[:] = sys.argv[1:]; from {module} import main; main({argument})"
    path = [entry or str(Path.cwd()) for entry in sys.path]
    return [sys.executable, "-P", "-c", start, *path]


def child_environment() -> dict[str, str]:
    """This process's environment, and the mark by which `mlgo_gym` registers no environments."""
    return os.environ | {"MLGO_GYM_WORKER": "1"}


def check_llvmlite(version: str | None) -> None:
    """Raise unless this version of llvmlite embeds an LLVM that can be used."""
    if version is None or Version(version) < Version(MINIMUM_LLVMLITE):
        raise EnvironmentSetupError(
            f"llvmlite: expected version {MINIMUM_LLVMLITE} or newer, found {version or 'none'}; "
            f"run: pip install '{LLVMLITE}'"
        )


def check_llvm(version: str, llvmlite: str) -> None:
    """Raise unless this is the LLVM that all was made for, or ``MLGO_ANY_LLVM=1`` lifts it."""
    if os.environ.get(_ANY_LLVM) == "1" or version.partition(".")[0] == str(LLVM_MAJOR):
        return
    raise EnvironmentSetupError(
        f"LLVM: expected version {LLVM_MAJOR}, found {version} in llvmlite {llvmlite}; "
        f"run: pip install '{LLVMLITE}', or set {_ANY_LLVM}=1 to go on at your own risk"
    )


def installed_llvmlite() -> str | None:
    """The version of the installed llvmlite; importing it is left to the workers."""
    try:
        return metadata.version("llvmlite")
    except metadata.PackageNotFoundError:
        return None
    except OSError as error:
        raise EnvironmentSetupError(f"llvmlite: its version cannot be read: {error}") from error


class BranchProcess:
    """A fork of another child: a child of this process that it did not start, but has to reap."""

    def __init__(self, pid: int, stdin: IO[bytes], stderr: IO[bytes]) -> None:
        self.pid = pid
        self.stdin: IO[bytes] | None = stdin
        self.stderr: IO[bytes] | None = stderr
        self.returncode: int | Any = None

    def poll(self) -> int | None:
        """The exit status, negative for a signal, once there is one; never waits."""
        self._reap(os.WNOHANG)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the exit status."""
        if self.returncode is None and timeout is not None and not self._ends_within(timeout):
            raise subprocess.TimeoutExpired("branch", timeout)
        self._reap(0)
        return int(self.returncode)

    def kill(self) -> None:
        """Send SIGKILL."""
        with contextlib.suppress(ProcessLookupError):
            if self.poll() is None:
                os.kill(self.pid, signal.SIGKILL)

    def _ends_within(self, timeout: float) -> bool:
        try:
            descriptor = os.pidfd_open(self.pid)
        except ProcessLookupError:  # where SIGCHLD is ignored, nobody has to reap it
            return True
        try:
            return is_readable(descriptor, timeout)
        finally:
            os.close(descriptor)

    def _reap(self, options: int) -> None:
        if self.returncode is not None:
            return
        status = None
        with contextlib.suppress(ChildProcessError):  # reaped by a wait for any child
            pid, status = os.waitpid(self.pid, options)
            if pid == 0:
                return
        self.returncode = 0 if status is None else os.waitstatus_to_exitcode(status)


@dataclass(frozen=True)
class Link:
    """A child process and this process's ends of what ties it here.

    The child's standard input is the lifeline, its standard error is piped. Requests and answers
    go over ``frames``; ``control`` asks to fork; ``numbers`` are the child's descriptors of both.
    """

    process: subprocess.Popen[bytes] | BranchProcess
    frames: socket.socket
    control: socket.socket
    numbers: tuple[int, int]

    @property
    def stderr_fd(self) -> int:
        """The descriptor at which the child's standard error arrives."""
        return _stream(self.process.stderr).fileno()

    def close(self) -> None:
        """Close this process's ends; the child ends when its lifeline does."""
        self.frames.close()
        self.control.close()
        _stream(self.process.stdin).close()
        _stream(self.process.stderr).close()

    def end(self) -> None:
        """Kill the child, reap it and close."""
        self.process.kill()
        self.process.wait()
        self.close()


def start_child(limits: Limits, functions: Sequence[SentPolicy] = ()) -> Link:
    """Start a child anew; it finds modules just as this process does.

    What functions import that are to answer there is imported while files can be read.
    """
    with contextlib.ExitStack() as ours, contextlib.ExitStack() as theirs:
        try:
            frames, childs_frames = connected_sockets(socket.SOCK_STREAM, ours, theirs)
            control, childs_control = connected_sockets(socket.SOCK_SEQPACKET, ours, theirs)
            numbers = (childs_frames.fileno(), childs_control.fileno())
            sent = [(dict(each.about), each.data.decode()) for each in functions]
            told = open_bytes(json.dumps(sent).encode())
            theirs.callback(os.close, told)
            limited = tuple(limits_to_json(limits))
            arguments = ", ".join(map(repr, (*numbers, told, level_offset(), limited)))
            process = subprocess.Popen(
                child_command("mlgo_gym.llvm.worker._child", arguments),
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                pass_fds=(*numbers, told),
                env=child_environment(),
                start_new_session=True,
            )
        except OSError as error:
            problem = f"worker: cannot start {sys.executable}: {error}"
            raise EnvironmentSetupError(problem) from error
        ours.pop_all()
    return Link(process, frames, control, numbers)


def limits_to_json(limits: Limits) -> list[float]:
    """Return limits as numbers, none of them infinite."""
    return [min(each, _MOST) for each in astuple(limits)]


def connected_sockets(
    kind: int, ours: contextlib.ExitStack, theirs: contextlib.ExitStack
) -> tuple[socket.socket, socket.socket]:
    """Two ends, the first ours, which close with what they are given to."""
    own, other = socket.socketpair(socket.AF_UNIX, kind)
    ours.callback(own.close)
    theirs.callback(other.close)
    return own, other


def connected_pipe(readers: contextlib.ExitStack, writers: contextlib.ExitStack) -> tuple[int, int]:
    """The two ends of a pipe, each closed with what it is given to."""
    reading, writing = os.pipe()
    readers.callback(os.close, reading)
    writers.callback(os.close, writing)
    return reading, writing


def _stream(stream: IO[bytes] | None) -> IO[bytes]:
    if stream is None:
        raise InternalError("worker: a pipe to the child is missing")
    return stream

"""Child processes: none stays when this process is killed, and their exit statuses are known.

Of a process that ignores SIGCHLD the kernel keeps statuses: `subprocess` then returns 0 whatever
happened, and `os.wait4` raises.
"""

from __future__ import annotations

import atexit
import os
import resource
import signal
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, TypeVar

from corpus_tools.errors import CompileError, ToolchainError
from corpus_tools.sandbox import confine

_TAIL_LINES: Final = 20
_GUARDIAN: Final = Path(__file__).with_name("guardian.py")

_ELF64: Final = b"\x7fELF\x02\x01"
_HEADER, _SEGMENT = 64, struct.Struct("<IIQQQQQQ")
_INTERPRETER: Final = 3


class _Guardian:
    """A child that kills the others when this process is gone (`corpus_tools.guardian`)."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._owner = 0

    def start(self) -> None:
        """Start it, unless this process has one; elsewhere than on Linux there is none."""
        with self._lock:
            if self._owner == os.getpid() or not hasattr(os, "pidfd_open"):
                return
            with suppress(OSError):
                self._process = subprocess.Popen(
                    [sys.executable, "-I", "-S", str(_GUARDIAN)],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    cwd="/",
                    bufsize=0,
                    start_new_session=True,
                )
                self._owner = os.getpid()
                atexit.register(self._end)

    def watch(self, number: int) -> None:
        """Have the guardian kill a process when this one is gone."""
        if self._process is not None and self._process.stdin is not None:
            with suppress(OSError):
                self._process.stdin.write(b"%d\n" % number)

    def _end(self) -> None:
        if self._process is not None and self._owner == os.getpid():
            self._process.communicate()


_guardian: Final = _Guardian()


def start_guardian() -> None:
    """Start what kills children of this process when it is killed, before a thread is confined."""
    _guardian.start()


class Guarded(subprocess.Popen[Any]):
    """A program that is killed when this process is gone, however it went.

    Raises:
        OSError: it cannot be started.
        ToolchainError: nobody would know how it ended (`check_statuses`).
    """

    def __init__(self, command: Sequence[str], **settings: Any) -> None:
        check_statuses()
        _guardian.start()
        super().__init__(command, **settings)
        _guardian.watch(self.pid)


def run(
    command: Sequence[str],
    *,
    timeout: float,
    limits: Mapping[int, int] | None = None,
    **settings: Any,
) -> subprocess.CompletedProcess[Any]:
    """Run a program to its end, as `subprocess.run` does with ``capture_output`` and no input.

    Args:
        command: the program and its arguments.
        timeout: seconds after which it is killed.
        limits: what it may take, by the constants of `resource`; on Linux.
        **settings: as `subprocess.Popen` takes them.

    Raises:
        OSError: it cannot be started.
        ToolchainError: nobody would know how it ended (`check_statuses`).
        subprocess.TimeoutExpired: it ran past its time.

    >>> run(["echo", "-n", "a"], timeout=60).stdout
    b'a'
    """
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with Guarded(command, **{**pipes, **settings}) as process:
        try:
            bound(process.pid, limits or {})
            stdout, stderr = process.communicate(timeout=timeout)
        except BaseException:
            process.kill()
            raise
        return subprocess.CompletedProcess(process.args, process.returncode, stdout, stderr)


def bound(pid: int, limits: Mapping[int, int]) -> None:
    """Limit what a child may take, by the constants of `resource`; on Linux alone."""
    if sys.platform == "linux":
        with suppress(ProcessLookupError):  # it is over already
            for limit, value in limits.items():
                resource.prlimit(pid, limit, (value, value))


def run_tool(
    start: Callable[[], subprocess.CompletedProcess[Any]],
    program: Path,
    subject: str,
    name: str | None = None,
) -> subprocess.CompletedProcess[Any]:
    """Run one of a compiler's tools to its end.

    Args:
        start: runs it, as `run` does, and has its standard error as text.
        program: what it runs.
        subject: what the tool works on, for errors.
        name: what errors call the tool; by default the program's file.

    Raises:
        CompileError: the tool cannot be started, ran past its time or failed.
    """
    name = name or program.name
    try:
        process = start()
    except subprocess.TimeoutExpired as error:
        reason = f"{name} ran past its deadline of {error.timeout:g} s"
        raise CompileError(subject, reason) from error
    except OSError as error:
        raise CompileError(subject, f"{program} does not run: {error.strerror}") from error
    if status := process.returncode:
        how = f"was killed by signal {-status}" if status < 0 else f"exited with {status}"
        tail = "\n".join(process.stderr.splitlines()[-_TAIL_LINES:])
        raise CompileError(subject, f"{name} {how}", exit_status=status, stderr_tail=tail)
    return process


def receive_statuses() -> None:
    """No longer ignore SIGCHLD: for commands, which may have been started by one that does."""
    if _are_withheld():
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)


def check_statuses() -> None:
    """For functions, whose process is somebody else's.

    Raises:
        ToolchainError: this process ignores SIGCHLD, so that no program is known to have failed.
    """
    if _are_withheld():
        raise ToolchainError(
            "SIGCHLD: expected a process that does not ignore it, or no exit status of clang's "
            "is known; signal.signal(signal.SIGCHLD, signal.SIG_DFL)"
        )


def _are_withheld() -> bool:
    return signal.getsignal(signal.SIGCHLD) == signal.SIG_IGN


_Result = TypeVar("_Result")


def start_alone(program: Path, start: Callable[[], _Result]) -> _Result:
    """Do what starts a program, which can then execute itself alone and write nothing.

    It may read all. Where the kernel has no Landlock, and for a program that is a script and so
    starts others by itself, nothing is held back.

    Raises:
        ToolchainError: this process ignores SIGCHLD, and no status of the program's is known.
    """
    check_statuses()
    start_guardian()
    programs = _with_interpreter(program)
    if not programs:
        return start()

    def confined() -> _Result:
        confine(
            readable=[Path("/")],
            writable=[Path(os.devnull)],
            executable=programs,
            computes_only=False,
        )
        return start()

    with ThreadPoolExecutor(1) as thread:
        return thread.submit(confined).result()


def _with_interpreter(program: Path) -> list[Path]:
    """An ELF program and what loads it; nothing where it is no such program."""
    with program.open("rb") as file:
        header = file.read(_HEADER)
        if len(header) < _HEADER or not header.startswith(_ELF64):
            return []
        (offset,) = struct.unpack_from("<Q", header, 32)
        (count,) = struct.unpack_from("<H", header, 56)
        file.seek(offset)
        table = file.read(count * _SEGMENT.size)
        for kind, _, start, _, _, size, *_ in _SEGMENT.iter_unpack(table):
            if kind == _INTERPRETER:
                file.seek(start)
                return [program, Path(file.read(size).rstrip(b"\0").decode())]
    return [program]

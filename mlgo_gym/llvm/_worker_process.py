"""A worker: one child process with LLVM in it, and everything that can happen to it.

The parent never waits for it without a deadline, always drains its standard error, and takes
nothing for granted: a worker that died or hung is killed, reaped and described in an error.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import threading
import weakref
from collections.abc import Mapping, Sequence
from time import monotonic
from typing import Any, Final

from corpus_tools.sandbox import Held
from mlgo_gym.base import EnvironmentSetupError, PolicyError, UsageError
from mlgo_gym.llvm._launch import (
    Link,
    check_llvm,
    check_llvmlite,
    installed_llvmlite,
)
from mlgo_gym.llvm._limits import Limits, lack_of_memory
from mlgo_gym.llvm._worker_ends import FrameSocket, StandardError
from mlgo_gym.llvm._zygote import start_worker
from mlgo_gym.problems import SentPolicy
from mlgo_gym.stream import remove_stale_folders

_START_TIMEOUT_S: Final = 60.0
_CLOSE_TIMEOUT_S: Final = 1.0
_DEATH_TIMEOUT_S: Final = 10.0
"""On a busy machine a child that has hung up needs a while to say why."""
_LONGEST_POLL_S: Final = 3600.0


class WorkerDiedError(Exception):
    """The child process is gone."""

    def __init__(self, exit_status: int, stderr_tail: tuple[str, ...]) -> None:
        super().__init__(f"worker died with {describe_exit(exit_status)}")
        self.exit_status = exit_status
        self.stderr_tail = stderr_tail


def describe_exit(status: int) -> str:
    """An exit status in words.

    >>> describe_exit(1), describe_exit(-6)
    ('exit status 1', 'signal 6 (SIGABRT)')
    """
    if status >= 0:
        return f"exit status {status}"
    try:
        return f"signal {-status} ({signal.Signals(-status).name})"
    except ValueError:
        return f"signal {-status}"


class Alone:
    """Lets one thread in, as often as it likes; another is told, before it breaks a worker."""

    def __init__(self) -> None:
        self._lock = threading.RLock()

    def __enter__(self) -> None:
        if not self._lock.acquire(blocking=False):
            raise UsageError(
                "compiler: expected one thread at a time, found another that is using it; give "
                "each thread a compiler of its own"
            )

    def __exit__(self, *_: object) -> None:
        self._lock.release()


class Worker:
    """A child process that compiles, one module at a time.

    Attributes:
        stderr: what it writes to its standard error.
        verified: hashes of the modules that its verifier has passed.
        interest: what `wait` looks at: descriptors and the events of ``poll``.
        sandbox: what the kernel holds the child to.
        places: the child's descriptors, in pairs, that those of a request's channels become.
        loaded: keys of the policies that it holds.
        is_disowned: it belongs to the process that this one was forked from.
    """

    def __init__(
        self,
        llvm_options: tuple[str, ...] = (),
        limits: Limits | None = None,
        one_thread: Alone | None = None,
        *,
        link: Link | None = None,
        versions: Mapping[str, str] | None = None,
        functions: Sequence[SentPolicy] = (),
    ) -> None:
        if link is None:
            check_llvmlite(installed_llvmlite())
            remove_stale_folders()
        self.limits: Final = limits or Limits()
        self._alone = one_thread or Alone()
        self.link: Final = link or start_worker(self.limits, functions)
        self.pid: Final = self.link.process.pid
        self._process = self.link.process
        self._finalizer = weakref.finalize(self, self.link.end)
        self.is_disowned = False
        _WORKERS.add(self)
        self.llvm_options: Final = llvm_options
        self.rss_bytes = 0
        self.sandbox = Held(0, False)
        self.places: tuple[tuple[int, int], ...] = ()
        self.verified: set[str] = set()
        self.loaded: frozenset[str] = frozenset()
        self._frames = FrameSocket(self.link.frames)
        self.stderr: Final = StandardError(self.link.stderr_fd, self._finalizer)
        self._poll = select.poll()
        self.interest: dict[int, int] = {}
        self.watch(self._frames.descriptor)
        self.watch(self.stderr.descriptor)
        self.versions = dict(versions) if versions else self._greeting()

    def branch(self, link: Link) -> Worker:
        """The worker whose child, at this link, branched off this one's."""
        branch = Worker(self.llvm_options, self.limits, link=link, versions=self.versions)
        branch.sandbox = self.sandbox
        branch.rss_bytes = self.rss_bytes
        branch.verified |= self.verified
        branch.loaded = self.loaded
        return branch

    def _greeting(self) -> dict[str, str]:
        deadline = monotonic() + _START_TIMEOUT_S
        try:
            while (frame := self.take_frame()) is None and monotonic() < deadline:
                self.wait(deadline - monotonic())
            versions = _versions(frame)
            if frame:
                self.sandbox = Held(*frame[0]["sandbox"])
                self.places = tuple(zip(*[iter(frame[0]["places"])] * 2, strict=True))
        except WorkerDiedError as error:
            why = lack_of_memory(self.stderr.text(), self.limits)
            raise EnvironmentSetupError(
                f"worker: could not start: {why or _last(error.stderr_tail) or error}"
            ) from error
        except BaseException:
            self.kill()
            raise
        return versions

    def send(
        self, message: dict[str, Any], payload: bytes = b"", descriptors: Sequence[int] = ()
    ) -> None:
        """Queue a frame; it leaves as far as the child takes it, the rest while waiting.

        Descriptors leave with the first of it, at once.
        """
        with self._alone:
            self._frames.send(message, payload, descriptors)
            self._watch_frames()

    def take_frame(self) -> tuple[dict[str, Any], bytes] | None:
        """The next frame that has arrived whole, if there is one."""
        frame = self._frames.next_frame()
        if frame is not None:
            self.rss_bytes = frame[0]["rss_bytes"]
        return frame

    def watch(self, descriptor: int, events: int = select.POLLIN) -> None:
        """Let `wait` look at one more descriptor, a channel's."""
        self._poll.register(descriptor, events)
        self.interest[descriptor] = events

    def unwatch(self, descriptor: int) -> None:
        """Undo `watch`; what is not watched is left alone."""
        if self.interest.pop(descriptor, None) is not None:
            self._poll.unregister(descriptor)

    def wait(self, timeout_s: float) -> set[int]:
        """Wait until something happens; returns the watched descriptors that have something."""
        watched = set[int]()
        with self._alone:
            for descriptor, _ in self._poll.poll(1000 * min(max(0.0, timeout_s), _LONGEST_POLL_S)):
                if descriptor == self.stderr.descriptor:
                    if not self.stderr.drain():
                        self.unwatch(descriptor)
                elif descriptor == self._frames.descriptor:
                    self._frames.flush()
                    self._watch_frames()
                    if not self._frames.receive():
                        raise self.died()
                else:
                    watched.add(descriptor)
        return watched

    def is_alive(self) -> bool:
        """Whether the child is there and has not been told to end."""
        return self._process.poll() is None

    @property
    def is_reaped(self) -> bool:
        """Whether the child has ended and nothing is left of it."""
        return self._process.returncode is not None

    def has_hung_up(self) -> bool:
        """Whether the child has closed its end of the control socket, as its death does."""
        poll = select.poll()
        poll.register(self.link.control, 0)
        return bool(poll.poll(0))

    def died(self) -> WorkerDiedError:
        """The error for a child that has hung up; it is ended and reaped here."""
        return WorkerDiedError(*self._end(_DEATH_TIMEOUT_S))

    def kill(self) -> tuple[int, tuple[str, ...]]:
        """End the child at once, for its exit status and last words; safe to call twice."""
        with self._alone:
            self.signal_kill()
            status = self._process.wait()
            self.stderr.drain()
            if self._finalizer.detach():
                self.link.close()
        return status, self.stderr.tail()

    def signal_kill(self) -> None:
        """Send SIGKILL and leave the rest to whoever waits for the child."""
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()

    def close(self) -> None:
        """End an idle child in good order; safe to call twice."""
        if self.is_disowned:
            return
        with self._alone:
            self._frames.shut_down()
            self._end(_CLOSE_TIMEOUT_S)

    def disown(self) -> None:
        """Let go of a child that belongs to the process this one was forked from."""
        self.is_disowned = True
        if self._finalizer.detach():
            self.link.close()
            self._process.returncode = 0  # not ours to wait for

    def check_owner(self, module: str) -> None:
        """Raise where what it does with a module is another process's."""
        if self.is_disowned:
            raise UsageError(
                f"module {module!r}: the compilation belongs to the process that this one was "
                "forked from"
            )

    def _watch_frames(self) -> None:
        """Also wait for the child to take more, where something is left to send."""
        sending = select.POLLOUT if self._frames.has_unsent else 0
        self.watch(self._frames.descriptor, select.POLLIN | sending)

    def _end(self, patience_s: float) -> tuple[int, tuple[str, ...]]:
        # The child hung up: give it a moment to exit by itself, so that its status is its own.
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(patience_s)
        return self.kill()


_WORKERS: Final[weakref.WeakSet[Worker]] = weakref.WeakSet()


def _disown_all() -> None:
    for worker in list(_WORKERS):
        worker.disown()


os.register_at_fork(after_in_child=_disown_all)


def _versions(greeting: tuple[dict[str, Any], bytes] | None) -> dict[str, str]:
    if greeting is None:
        raise EnvironmentSetupError(f"worker: expected it to start within {_START_TIMEOUT_S:.0f} s")
    if raised := greeting[0].get("raised"):
        raise PolicyError(raised)
    versions: dict[str, str] = greeting[0]["versions"]
    check_llvm(versions["llvm"], versions["llvmlite"])
    return versions


def _last(lines: Sequence[str]) -> str:
    """The last words of a process: of a traceback the error alone."""
    has_traceback = any(line.startswith("Traceback ") for line in lines)
    return lines[-1] if has_traceback else "; ".join(lines)

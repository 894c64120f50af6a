"""The host's end of LLVM's interactive channel: two FIFOs, observations in, advice out.

LLVM (``llvm/lib/Analysis/InteractiveModelRunner.cpp``) opens ``BASE.in`` for reading, then
``BASE.out`` for writing, and each open blocks until the other end is there. The host therefore
opens both before the compilation starts, without blocking: ``.in`` for reading *and* writing, so
that LLVM never waits for a writer and never sees end-of-file, which it would take for an answer.

What LLVM sends is the stream of `mlgo_gym.training_log` without outcomes. A channel serves one
compilation; the FIFOs' names are gone as soon as LLVM has opened both.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import tempfile
from pathlib import Path
from typing import Final

from mlgo_gym.errors import InternalError, UsageError
from mlgo_gym.problems import Problem
from mlgo_gym.training_log import Context, Header, Observation, StreamDecoder

__all__ = ["Channel", "remove_stale_folders"]

_READ_BYTES: Final = 1 << 16
_FOLDER_PREFIX: Final = "mlgo-gym-"
_FOLDER_NAME: Final = re.compile(rf"{_FOLDER_PREFIX}(\d+)-")


class Channel:
    """One pair of FIFOs and the observations that come through it.

    Attributes:
        base: the path that LLVM is told, without ``.in`` and ``.out``.
        context: the context that LLVM named last.
    """

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        self._decoder = StreamDecoder()
        self._folder = Path(tempfile.mkdtemp(prefix=f"{_FOLDER_PREFIX}{os.getpid()}-"))
        self.base: Final = str(self._folder / "channel")
        self.context = ""
        self._out: int | None = None
        self._in: int | None = None
        try:
            self._in = _open_fifo(f"{self.base}.in", os.O_RDWR)
            self._out = _open_fifo(f"{self.base}.out", os.O_RDONLY)
        except BaseException:
            self.close()
            raise

    def fileno(self) -> int:
        """The descriptor that is readable when LLVM has sent something.

        Raises:
            UsageError: the channel is closed.
        """
        if self._out is None:
            raise UsageError("channel: closed")
        return self._out

    def receive(self) -> bool:
        """Take in what LLVM has sent, without waiting; false once LLVM has closed its end."""
        try:
            data = os.read(self.fileno(), _READ_BYTES)
        except BlockingIOError:
            return True
        self._decoder.feed(data)
        return bool(data)

    def next_observation(self) -> Observation | None:
        """The next whole observation of what has been taken in, if there is one.

        Raises:
            TrainingLogError: LLVM broke the format.
            EnvironmentSetupError: LLVM's features are not those of the problem.
        """
        while (event := self._decoder.next_event()) is not None:
            match event:
                case Observation():
                    return event
                case Context(name):
                    self.context = name
                case Header():
                    self._problem.check_header(event)
                    self._remove_names()
        return None

    def reply(self, advice: bytes) -> None:
        """Send the advice tensor's raw bytes; LLVM is waiting for them, so this never blocks."""
        if self._in is None:
            raise UsageError("channel: closed")
        if os.write(self._in, advice) != len(advice):
            raise InternalError(f"channel: could not write {len(advice)} bytes at once")

    def close(self) -> None:
        """Close both ends and remove what is left on disk. LLVM must have finished or be gone."""
        for descriptor in (self._out, self._in):
            if descriptor is not None:
                os.close(descriptor)
        self._out = self._in = None
        self._remove_names()

    def _remove_names(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)


def remove_stale_folders() -> None:
    """Remove FIFOs whose owner was killed before LLVM had opened them."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_FOLDER_PREFIX}*"):
        match = _FOLDER_NAME.match(folder.name)
        if match and not _is_alive(int(match.group(1))):
            shutil.rmtree(folder, ignore_errors=True)


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OverflowError:
        return False
    except PermissionError:
        return True
    return True


def _open_fifo(path: str, mode: int) -> int:
    with contextlib.suppress(FileExistsError):
        os.mkfifo(path, 0o600)
    return os.open(path, mode | os.O_NONBLOCK | os.O_CLOEXEC)

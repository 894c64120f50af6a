"""The host's end of LLVM's interactive channel: two FIFOs, observations in, advice out.

LLVM (``llvm/lib/Analysis/InteractiveModelRunner.cpp``) opens ``BASE.in`` for reading, then
``BASE.out`` for writing, and each open blocks until the other end is there. The host therefore
opens both before the compilation starts, without blocking: ``.in`` for reading *and* writing, so
that LLVM never waits for a writer and never sees end-of-file, which it would take for an answer.

A worker may open no file (`llvm._limits`). It is handed the ends of two pipes, and the
names are links to what it has at those descriptors: ``/proc/self/fd/N`` opens the pipe again.

What LLVM sends is the stream of `stream._training_log` without outcomes. A channel serves one
compilation; the names are gone as soon as LLVM has opened both. A compilation that branches off
another gets a channel over two pipes, which never have names.
"""

from __future__ import annotations

import contextlib
import copy
import os
import stat
import sys
import tempfile
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Final, Self

from corpus_tools.scratch import is_alive, process_namespace
from mlgo_gym.base import EnvironmentSetupError, TrainingLogError, UsageError
from mlgo_gym.stream._training_log import Context, Header, Observation, StreamDecoder

_READ_BYTES: Final = 1 << 16
_FIFO_STEM: Final = "channel"
_DESCRIPTORS: Final = "/proc/self/fd" if sys.platform == "linux" else "/dev/fd"


class Channel:
    """One pair of FIFOs, or pipes, and the observations that come through it.

    LLVM is told the ``base`` of their paths, without ``.in`` and ``.out``. What ``on_header``
    raises when the header has come, `next_observation` raises.

    Args:
        places: where the compiler will have the ends of pipes, reading and writing; it is to be
            handed those of `take_handed`. Without them there are FIFOs.
    """

    def __init__(
        self,
        on_header: Callable[[Header], None] = lambda _: None,
        places: tuple[int, int] | None = None,
    ) -> None:
        self._on_header = on_header
        self._decoder = StreamDecoder()
        self._compilers_ends: tuple[int, int] | None = None
        self._places = places or ()
        folder, self._ends = _make_fifos() if places is None else _make_pipes(places)
        self._finalizer = weakref.finalize(self, self._ends.close)
        self.base: Final = str(folder / _FIFO_STEM)
        self.header: Header | None = None
        self.context = ""
        _CHANNELS.add(self)

    def branch(self) -> tuple[Self, tuple[int, int]]:
        """A channel that goes on here, and its compiler's ends, read and write, to be closed."""
        from_host, inbound = os.pipe()
        try:
            outbound, to_host = os.pipe()
        except BaseException:
            os.close(from_host)
            os.close(inbound)
            raise
        os.set_blocking(outbound, False)
        branch = copy.copy(self)
        ends = _Ends(None, inbound, outbound)
        finalizer = weakref.finalize(branch, ends.close)
        vars(branch).update(_decoder=copy.copy(self._decoder), _ends=ends, _finalizer=finalizer)
        _CHANNELS.add(branch)
        return branch, (from_host, to_host)

    def take_handed(self) -> tuple[int, ...]:
        """The compiler's ends of the pipes, once: the caller closes them when they are sent."""
        handed = tuple(self._ends.handed)
        self._ends.handed.clear()
        return handed

    def compilers_ends(self, pid: int) -> tuple[int, int] | None:
        """The compiler's descriptors of its ends, reading and writing, if they can be seen."""
        if self._compilers_ends is None:
            ends = self._open_ends()
            wanted = [_identity(os.fstat(end)) for end in (ends.inbound, ends.outbound)]
            found: dict[tuple[int, int], int] = {}
            with contextlib.suppress(OSError):
                for path in Path(f"/proc/{pid}/fd").iterdir():
                    if int(path.name) in self._places:
                        continue  # those that LLVM has opened anew
                    with contextlib.suppress(OSError):
                        found[_identity(path.stat())] = int(path.name)
            if all(each in found for each in wanted):
                self._compilers_ends = (found[wanted[0]], found[wanted[1]])
        return self._compilers_ends

    def fileno(self) -> int:
        """The descriptor that is readable when LLVM has sent something."""
        return self._open_ends().outbound

    def receive(self) -> bool:
        """Take in what LLVM has sent, without waiting; false once LLVM has closed its end."""
        try:
            data = os.read(self.fileno(), _READ_BYTES)
        except BlockingIOError:
            return True
        self._decoder.feed(data)
        return bool(data)

    def next_observation(self) -> Observation | None:
        """The next whole observation of what has been taken in, if there is one."""
        while (event := self._decoder.next_event()) is not None:
            match event:
                case Observation():
                    return event
                case Context(name):
                    self.context = name
                case Header():
                    self._ends.remove_names()  # LLVM has opened both
                    self.header = event
                    self._on_header(event)
        return None

    def finish(self) -> None:
        """See that LLVM has not closed its end in the middle of something.

        Raises:
            TrainingLogError: it has.
        """
        self._decoder.check_whole()

    def reply(self, advice: bytes) -> None:
        """Send the advice's raw bytes; it never blocks, and nothing happens if LLVM has died.

        Raises:
            TrainingLogError: there is no room, since whoever asks does not read the answers.
        """
        written = 0
        with contextlib.suppress(BlockingIOError):
            try:
                written = os.write(self._open_ends().inbound, advice)
            except BrokenPipeError:
                return
        if written != len(advice):
            raise TrainingLogError(
                f"channel: expected room for {len(advice)} bytes of advice, found {written}: "
                "answers before have not been read"
            )

    def close(self) -> None:
        """Close both ends and remove what is left on disk. LLVM must have finished or be gone."""
        self._finalizer()

    def disown(self) -> None:
        """Let go of a channel that belongs to the process this one was forked from."""
        if self._finalizer.detach():
            self._ends.close_descriptors()

    def _open_ends(self) -> _Ends:
        if not self._finalizer.alive:
            raise UsageError("channel: closed")
        return self._ends


def path_of(place: int) -> str:
    """The path by which a process opens again what it has at a descriptor."""
    return f"{_DESCRIPTORS}/{place}"


def open_bytes(data: bytes) -> int:
    """A descriptor of a file without a name that holds these bytes, to be closed.

    On Linux it is of no folder either: what a worker may not read does not hold for it.
    """
    try:
        with _nameless() as file:
            file.write(data)
            file.flush()
            file.seek(0)
            return os.dup(file.fileno())
    except OSError as error:
        raise EnvironmentSetupError(f"a file for LLVM: cannot be made: {error}") from error


def _nameless() -> IO[bytes]:
    make = getattr(os, "memfd_create", None)
    return os.fdopen(make("mlgo-gym"), "w+b", buffering=0) if make else tempfile.TemporaryFile()


@dataclass(frozen=True, slots=True)
class _Ends:
    """A channel's resources: two descriptors, and names until LLVM has them open."""

    folder: Path | None
    inbound: int
    outbound: int
    handed: list[int] = field(default_factory=list)

    def close(self) -> None:
        self.close_descriptors()
        self.remove_names()

    def close_descriptors(self) -> None:
        for descriptor in (self.inbound, self.outbound, *self.handed):
            os.close(descriptor)

    def remove_names(self) -> None:
        if self.folder:
            _remove_names(self.folder)


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


_CHANNELS: Final[weakref.WeakSet[Channel]] = weakref.WeakSet()


def _disown_all() -> None:
    for channel in list(_CHANNELS):
        channel.disown()


os.register_at_fork(after_in_child=_disown_all)


def remove_stale_folders() -> None:
    """Remove folders of this user's dead processes, in this namespace, with nothing of others'."""
    folders: list[Path] = []
    with contextlib.suppress(OSError):  # another start will find them
        folders += Path(tempfile.gettempdir()).glob(f"{_folder_prefix()}*")
    for folder in folders:
        owner = folder.name.removeprefix(_folder_prefix()).partition("-")[0]
        if owner.isdigit() and not is_alive(int(owner)):
            _remove_names(folder)


def _make_fifos() -> tuple[Path, _Ends]:
    with _making() as (folder, undo):
        ends: list[int] = []
        # Python closes descriptors on exec, so the worker inherits neither.
        for name, mode in (("in", os.O_RDWR), ("out", os.O_RDONLY)):
            path = folder / f"{_FIFO_STEM}.{name}"
            os.mkfifo(path, 0o600)
            ends.append(os.open(path, mode | os.O_NONBLOCK))
            undo.callback(os.close, ends[-1])
        return folder, _Ends(folder, ends[0], ends[1])


def _make_pipes(places: tuple[int, int]) -> tuple[Path, _Ends]:
    with _making() as (folder, undo):
        for suffix, place in zip(("in", "out"), places, strict=True):
            (folder / f"{_FIFO_STEM}.{suffix}").symlink_to(path_of(place))
        pipes = []
        for _ in places:
            pipes.append(os.pipe())
            for end in pipes[-1]:
                undo.callback(os.close, end)
        (from_host, inbound), (outbound, to_host) = pipes
        os.set_blocking(inbound, False)
        os.set_blocking(outbound, False)
        return folder, _Ends(folder, inbound, outbound, [from_host, to_host])


@contextlib.contextmanager
def _making() -> Iterator[tuple[Path, contextlib.ExitStack]]:
    """A folder for names, and what is undone where they cannot be made."""
    with contextlib.ExitStack() as undo:
        try:
            folder = Path(tempfile.mkdtemp(prefix=f"{_folder_prefix()}{os.getpid()}-"))
            undo.callback(_remove_names, folder)
            yield folder, undo
        except OSError as error:
            raise EnvironmentSetupError(
                f"channel: cannot make FIFOs in the temporary folder: {error}; TMPDIR names another"
            ) from error
        undo.pop_all()


def _remove_names(folder: Path) -> None:
    """Remove a folder of ours, FIFOs and links; anything else in it stays, and so does it."""
    with contextlib.suppress(OSError):
        about = folder.lstat()  # in a shared folder, others may have put a link here
        if not stat.S_ISDIR(about.st_mode) or about.st_uid != os.getuid():
            return
        for end in ("in", "out"):  # by name: a process without descriptors cannot list it
            path = folder / f"{_FIFO_STEM}.{end}"
            if path.is_symlink() or path.is_fifo():
                path.unlink()
        folder.rmdir()


def _folder_prefix() -> str:
    """Names the process namespace, so that containers that share a folder keep apart."""
    return f"mlgo-gym-channel-{os.getuid()}-{process_namespace()}-"

"""Sums of what a program takes: bytes of files, names in its folder, threads.

The kernel limits each file and the memory that is mapped (`corpus_tools.launcher`). What only the
sum shows is looked at while the program runs and once more at its end; the program is killed when
it has taken too much. What it takes between two looks is not limited.
"""

from __future__ import annotations

import os
import signal
import stat
import threading
import time
from collections.abc import Container, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

MOST_BYTES: Final = 64 << 20
MOST_NAMES, MOST_LEVELS, MOST_THREADS = 16_384, 64, 256

_INTERVAL_S, _SHARE = 0.05, 20
"""Between two looks; longer where one takes more than a twentieth of that."""


class TooMuchError(Exception):
    """A program has taken too much; the text is what was expected and found."""


class Sums:
    """Watches one process of a program until `end`.

    Args:
        pid: the process, which has not been waited for.
        folder: where it may write.
        given_bytes: what was there before it began (`size_of`), which is not counted.
        ignored: descriptors of ours that it has, and that are not counted.

    Attributes:
        problem: what it has taken too much of, as expected and found; empty where nothing.
    """

    def __init__(self, pid: int, folder: Path, given_bytes: int, ignored: Iterable[int]) -> None:
        self.problem = ""
        self._ignored: Final = {_identity(os.fstat(each)) for each in ignored}
        self._pid, self._folder = pid, folder
        self._handle: Final = os.pidfd_open(pid)
        self._given_bytes: Final = given_bytes
        self._ended: Final = threading.Event()
        self._thread: Final = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def end(self) -> str:
        """Stop, look once more at what is in the folder, and return the problem."""
        self._ended.set()
        self._thread.join()
        os.close(self._handle)
        if not self.problem:
            with suppress(OSError):
                self._look(at_process=False)  # its number may be another's by now
        return self.problem

    def _watch(self) -> None:
        interval_s = _INTERVAL_S
        while not self._ended.wait(interval_s):
            began = time.monotonic()
            with suppress(OSError):  # it ends or removes something meanwhile
                self._look(at_process=True)
            if self.problem:
                with suppress(ProcessLookupError):
                    signal.pidfd_send_signal(self._handle, signal.SIGKILL)
                return
            interval_s = max(_INTERVAL_S, _SHARE * (time.monotonic() - began))

    def _look(self, *, at_process: bool) -> None:
        try:
            sizes = dict(_files(self._folder))
        except TooMuchError as found:
            self.problem = str(found)
            return
        threads = 0
        if at_process:
            with suppress(OSError):
                sizes |= dict(_nameless(self._pid, self._ignored))
                threads = sum(1 for _ in Path(f"/proc/{self._pid}/task").iterdir())
        if sum(sizes.values()) - self._given_bytes > MOST_BYTES:
            self.problem = f"expected files and output of at most {MOST_BYTES} bytes, found more"
        elif threads > MOST_THREADS:
            self.problem = f"expected at most {MOST_THREADS} threads at once, found more"


def size_of(folder: Path) -> int:
    """The bytes on disk of what a folder holds."""
    return sum(size for _, size in _files(folder))


def _files(folder: Path) -> Iterator[tuple[tuple[int, int], int]]:
    """Device, number and bytes on disk of what a folder holds.

    Raises:
        TooMuchError: there are too many names or levels.
    """
    left, names = [(folder, 0)], 0
    while left:
        place, level = left.pop()
        # What nobody may look into, nobody may write into either.
        with suppress(FileNotFoundError, PermissionError), os.scandir(place) as entries:
            for entry in entries:
                names += 1
                if names > MOST_NAMES:
                    raise TooMuchError(
                        f"expected at most {MOST_NAMES} files and folders, found more"
                    )
                found = entry.stat(follow_symlinks=False)
                yield _identity(found), found.st_blocks * 512
                if stat.S_ISDIR(found.st_mode):
                    if level == MOST_LEVELS:
                        expected = f"expected at most {MOST_LEVELS} levels of folders"
                        raise TooMuchError(f"{expected}, found more")
                    left.append((Path(entry.path), level + 1))


def _nameless(
    pid: int, ignored: Container[tuple[int, int]]
) -> Iterator[tuple[tuple[int, int], int]]:
    """Identity and bytes on disk of files that a process has open and no folder holds any more."""
    for path in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):
            found = path.stat()
            is_counted = stat.S_ISREG(found.st_mode) and not found.st_nlink
            if is_counted and _identity(found) not in ignored:
                yield _identity(found), found.st_blocks * 512


def _identity(found: os.stat_result) -> tuple[int, int]:
    return found.st_dev, found.st_ino

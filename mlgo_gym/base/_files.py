"""Files: written so that they survive an interruption, read so that none can stall or flood us.

What is written is, after a kill or a loss of power, whole and old or whole and new. What is read
may be anything that a user named: nothing here waits for a pipe or reads more than it was allowed.

All errors are ``OSError`` whose ``strerror`` is the reason, without number and name. `FileError`
is the one that is about the file and not about the system: reading it again will not help.
"""

from __future__ import annotations

import errno
import fcntl
import io
import json
import math
import os
import secrets
import stat
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, Final

from corpus_tools.reading import FileError, brief, kind_of_file, open_regular, parse_json
from corpus_tools.reading import read_regular as read_bounded
from corpus_tools.scratch import replaced_folder

__all__ = [
    "PARTIAL",
    "FileError",
    "check_contents",
    "check_file",
    "check_folder",
    "check_kind",
    "exclusive_folder",
    "locked_folder",
    "open_regular",
    "parse_json",
    "read_bounded",
    "read_json",
    "replacing",
    "staged_folder",
    "write_atomically",
    "write_json",
]

_PACKAGE: Final = Path(__file__).parents[1]
_IN_WHEEL: Final = _PACKAGE / "model" / "shipped"
SHIPPED: Final = _IN_WHEEL if _IN_WHEEL.is_dir() else _PACKAGE.parent / "models"
"""The folder of the models that ship: of an installed package, or of the checkout."""
PARTIAL: Final = ".partial"
"""How the names of files end that are being written where all files have names, or for a moment."""

_NO_SUCH_FILES: Final = (errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL, errno.ENOSYS)
_BUFFER_BYTES: Final = 1 << 17
_LOCK_STEP_S: Final = 0.02
_READER_S: Final = 5.0
"""How long the reader of a FIFO may take to open it, beside which a command was started."""

_NAME_LENGTH: Final = 48


def check_contents(folder: Path) -> None:
    """See that there are files and folders alone in a folder that is read and written by names.

    Whoever made the folder has chosen what its names lead to: a link leads out of it, and who
    opens a FIFO waits. The folder itself may be a link, since the user has named it.

    Raises:
        FileError: there is something else.
        OSError: a folder in it cannot be read.
    """
    pending = [str(folder)]
    while pending:
        with os.scandir(pending.pop()) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    pending.append(entry.path)
                elif not entry.is_file(follow_symlinks=False):
                    raise _foreign(folder, entry)


def _foreign(folder: Path, entry: os.DirEntry[str]) -> FileError:
    found = kind_of_file(entry.stat(follow_symlinks=False).st_mode)
    name = brief(os.path.relpath(entry.path, folder))
    reason = f"expected files and folders alone in it, found {found}: {name}; remove it"
    return FileError(errno.EINVAL, reason, entry.path)


def file_stamp(path: str) -> tuple[int, int] | None:
    """The size and time of a file, by which a change of it is seen; ``None`` if there is none."""
    try:
        status = os.stat(path)  # noqa: PTH116 - a Path takes three times as long
    except (OSError, ValueError):
        return None
    return status.st_size, status.st_mtime_ns


def read_json(path: Path, limit_bytes: int) -> Any:
    """Read a regular file and parse it."""
    data = read_bounded(path, limit_bytes)
    try:
        return parse_json(data)
    except ValueError as error:
        raise FileError(errno.EINVAL, f"expected JSON: {error}", str(path)) from error


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """Open a file for writing that takes its name when the block ends well and it is on the disk.

    Where the block raises or the process is killed, what was there before stays. A file that is
    replaced keeps its permissions; a new one gets those of the umask. Of a symbolic link, the
    target is replaced. What is there and is no regular file, such as a FIFO, a device or
    ``/dev/stdout``, is written as it is; a FIFO that nobody opens for reading is an error. Other
    programs may write to the file's ``name`` instead. Where it cannot be written, the error's
    ``filename`` is this path.
    """
    with _naming(path):
        mode = _mode(path)
        target = _followed(path)
        if target.is_symlink():  # a descriptor of this process: opened anew, it would start at 0
            special: Path | int | None = os.dup(int(target.name))
        else:
            special = None if mode is None or stat.S_ISREG(mode) else path
    if special is not None:
        with _NamedFile(path, special).buffered() as file:
            yield file
        return
    name = f".{target.name[:_NAME_LENGTH]}.{secrets.token_hex(8)}{PARTIAL}"
    temporary = target.with_name(name)
    with _naming(path):
        descriptor = _new_file(temporary)
    unnamed = None if temporary.exists() else f"{_descriptors()}/{descriptor}"
    try:
        with _NamedFile(path, descriptor, unnamed or str(temporary)).buffered() as file:
            if mode is not None:
                os.fchmod(file.fileno(), stat.S_IMODE(mode))
            yield file
        with _naming(path):
            os.fsync(descriptor)
            if unnamed:
                os.link(unnamed, temporary, src_dir_fd=descriptor)  # link(2) would not follow it
            temporary.replace(target)
            _sync(target.parent)
    finally:
        os.close(descriptor)
        with suppress(OSError):
            temporary.unlink()


def check_file(path: Path) -> None:
    """See that `replacing` can write a file, whose folder may be to be made; nothing changes.

    Where it cannot, the error's ``filename`` is this path.
    """
    with _naming(path):
        mode = _mode(path)
        target = _followed(path)
        if mode is None or stat.S_ISREG(mode):
            if not target.is_symlink():  # a descriptor of this process, which is open
                _check_new_file(target.parent)
        elif not os.access(path, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))


def check_folder(folder: Path, *, is_replaced: bool = False) -> None:
    """See that files can be put into a folder, which may be to be made; nothing changes.

    Args:
        folder: where it cannot, it is the error's ``filename``.
        is_replaced: whether another folder is to take its place, as `staged_folder` does.
    """
    with _naming(folder):
        target = Path(os.path.realpath(folder))
        if target.exists() and not target.is_dir():
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
        if is_replaced and target.is_mount():
            raise OSError(errno.EBUSY, os.strerror(errno.EBUSY))
        _check_new_file(target)
        if is_replaced:
            _check_new_file(target.parent)


def _check_new_file(folder: Path) -> None:
    """Make a file in a folder, or in the nearest one above it that is there, and remove it."""
    nearest = next(each for each in (folder, *folder.parents) if os.path.lexists(each))
    temporary = nearest / f".{secrets.token_hex(8)}{PARTIAL}"
    descriptor = _new_file(temporary)
    os.close(descriptor)
    with suppress(FileNotFoundError):
        temporary.unlink()


def write_atomically(path: Path, data: bytes) -> None:
    """Write a file, as `replacing` does."""
    with replacing(path) as file:
        file.write(data)


def write_json(path: Path, value: Any) -> None:
    """Write a value as indented JSON, atomically."""
    write_atomically(path, (json.dumps(value, indent=2) + "\n").encode())


def check_kind(folder: Path, *files: str) -> None:
    """See that a folder is missing, empty or has one of these files: others are not ours to delete.

    Raises:
        FileError: it has other files alone.
    """
    if not folder.is_dir() or any((folder / each).is_file() for each in files):
        return
    if any(folder.iterdir()):
        reason = f"expected an empty folder or one with {' or '.join(files)}, found another"
        raise FileError(errno.EEXIST, reason, str(folder))


@contextmanager
def staged_folder(target: Path, kind: str | None) -> Iterator[Path]:
    """Yield a folder that takes the target's place when the block ends well.

    All its files are forced to the disk before. What was at the target is deleted after, and stays
    where something cannot be written, or where it is a file.

    Args:
        target: the folder.
        kind: the name of a file that all folders of its kind have: one without it is not replaced.
            ``None`` where the block keeps what is there.

    Raises:
        FileError: another kind of folder is there.
    """
    if kind:
        check_kind(target, kind)
    with replaced_folder(target) as staged:
        yield staged
        for path in [*sorted(staged.rglob("*")), staged]:
            _sync(path)
    _sync(Path(os.path.realpath(target)).parent)


@contextmanager
def locked_folder(folder: Path, *, patience_s: float = math.inf) -> Iterator[None]:
    """Make and lock a folder; a lock that is not to be had in time is a ``BlockingIOError``."""
    folder.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        _lock(descriptor, time.monotonic() + patience_s)
        yield
    finally:
        os.close(descriptor)


@contextmanager
def exclusive_folder(folder: Path) -> Iterator[None]:
    """Make and lock a folder at once, and see what is in it, as `check_contents` does."""
    with locked_folder(folder, patience_s=0):
        check_contents(folder)
        yield


def _lock(descriptor: int, deadline: float) -> None:
    while not _has_locked(descriptor):
        if time.monotonic() >= deadline:
            raise BlockingIOError(errno.EWOULDBLOCK, "another process has it")
        time.sleep(_LOCK_STEP_S)


def _has_locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


class _NamedFile(io.FileIO):
    """A file for writing whose errors name a path, which tells them from others in the block.

    A descriptor that comes with a name stays open.
    """

    def __init__(self, path: Path, file: Path | int, name: str | None = None) -> None:
        self._path = path
        with _naming(path):
            given = file if isinstance(file, int) else _open_special(file)
            super().__init__(given, "w", closefd=not name)
        self.name = name or str(path)

    def buffered(self) -> BinaryIO:
        return io.BufferedWriter(self, _BUFFER_BYTES)

    def write(self, data: Any, /) -> int:
        with _naming(self._path):
            return super().write(data)

    def close(self) -> None:
        with _naming(self._path):
            super().close()


def _open_special(path: Path) -> int:
    """Open what is no regular file for writing; of a FIFO, once somebody reads it."""
    deadline = time.monotonic() + _READER_S
    while True:
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY)
        except OSError as error:
            if error.errno != errno.ENXIO or not path.is_fifo():
                raise
            if time.monotonic() >= deadline:
                reason = f"expected a reader of the FIFO within {_READER_S:g} s, found none"
                raise FileError(errno.ENXIO, reason, str(path)) from error
            time.sleep(_LOCK_STEP_S)
        else:
            os.set_blocking(descriptor, True)
            return descriptor


def _new_file(temporary: Path) -> int:
    """Open a file that goes with its last descriptor; where there are none, one of this name."""
    if sys.platform == "linux" and Path("/proc/self/fd").exists():
        try:
            return os.open(temporary.parent, os.O_TMPFILE | os.O_WRONLY, 0o666)
        except OSError as error:
            if error.errno not in _NO_SUCH_FILES:
                raise
    return os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        error.filename = str(path)
        del error.filename2  # of a failed renaming
        raise


def _mode(path: Path) -> int | None:
    """Kind and permissions of what is there; None where nothing is."""
    try:
        return path.stat().st_mode
    except FileNotFoundError:
        return None


def _followed(path: Path) -> Path:
    """Where symbolic links lead, which do not go round in a circle; not into descriptors' files."""
    descriptors = _descriptors()
    while path.is_symlink() and os.path.realpath(path.parent) != descriptors:
        path = path.parent / path.readlink()
    return path


def _descriptors() -> str:
    """This process's descriptors, for others too; /proc may number processes as another does."""
    return os.path.realpath("/proc/self/fd")


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

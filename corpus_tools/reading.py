"""Reading files that may be anything: of bounded size, and never waiting for a pipe."""

from __future__ import annotations

import errno
import json
import math
import os
import reprlib
import stat
from collections.abc import Iterator
from contextlib import suppress
from io import BufferedReader, FileIO
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, TypeAlias

MAX_LEVELS: Final = 100
"""How deeply JSON may be nested."""

MAX_DIGITS: Final = 100
"""How long a whole number of JSON may be: the time to read one grows faster than its length."""

MAX_VALUES: Final = 1 << 24
"""The most values of JSON, of which an object counts as five: each takes far more memory than text.

A comma in a text counts as well.
"""

LARGEST_TEXT_BYTES: Final = 1 << 28
"""The size in bytes above which a command, a list or a manifest is not read: 256 MiB."""


_KINDS: Final = MappingProxyType(
    {
        stat.S_IFIFO: "a FIFO",
        stat.S_IFCHR: "a device",
        stat.S_IFBLK: "a device",
        stat.S_IFLNK: "a link",
        stat.S_IFSOCK: "a socket",
    }
)
_BRIEF: Final = reprlib.Repr()
_BRIEF.maxstring = _BRIEF.maxother = 80

_CALLED: Final = {
    type(None): "null",
    bool: "a truth value",
    int: "a whole number",
    float: "a number",
    str: "a text",
    list: "a list",
    dict: "a JSON object",
}


def brief(value: object) -> str:
    """Return a value as messages show it: long ones without their middle.

    >>> len(brief("x" * 1000))
    80
    """
    return _BRIEF.repr(value)


def is_file(path: Path) -> bool:
    """Return whether there is a regular file; no name is longer than the system allows."""
    try:
        return path.is_file()
    except OSError:  # of such a name
        return False


class FileError(OSError):
    """A file that is not what was expected: no regular file, too long, or no JSON."""


def open_regular(path: Path) -> BufferedReader:
    """Open a regular file for reading; a FIFO that nobody writes to is refused like any other.

    Args:
        path: the file.

    Raises:
        OSError: it cannot be opened, or is no regular file (`FileError`, ``EINVAL``).
    """
    flags = os.O_NONBLOCK | os.O_NOCTTY  # opening a FIFO waits for nobody
    raw = FileIO(str(path), opener=lambda name, given: os.open(name, given | flags))
    mode = os.fstat(raw.fileno()).st_mode
    if not stat.S_ISREG(mode):
        raw.close()
        found = kind_of_file(mode)
        raise FileError(errno.EINVAL, f"expected a regular file, found {found}", str(path))
    return BufferedReader(raw)


def kind_of_file(mode: int) -> str:
    """What a message calls a file of this mode, which is no regular one."""
    return _KINDS.get(stat.S_IFMT(mode), "something else")


def read_regular(path: Path, limit_bytes: int = LARGEST_TEXT_BYTES) -> bytes:
    """Read a regular file; of one that is too long, nothing is read.

    Args:
        path: the file.
        limit_bytes: the largest size that is read.

    Raises:
        OSError: it cannot be read, is no regular file (`FileError`, ``EINVAL``), or is larger
            (`FileError`, ``EFBIG``).
    """
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        # Of limit_bytes there would be memory for all of them.
        data = file.read(size + 1) if size <= limit_bytes else b""
        if len(data) > size:  # it grows, or is one of those in /proc, whose sizes are 0
            data += file.read(max(0, limit_bytes + 1 - len(data)))
    if (found := max(size, len(data))) > limit_bytes:
        reason = f"expected at most {limit_bytes} bytes, found {found}"
        raise FileError(errno.EFBIG, reason, str(path))
    return data


def own_file(path: Path, folder: Path) -> Path:
    """The path of a file in a folder that may be anybody's, unless it is a link out of that.

    Raises:
        OSError: it leads out of the folder (``EINVAL``), or around in a circle.
    """
    if not (real := Path(os.path.realpath(path))).is_relative_to(os.path.realpath(folder)):
        raise OSError(errno.EINVAL, f"expected a file in {str(folder)!r}, found a link to {real}")
    return path


def holds(path: Path, data: bytes) -> bool:
    """Whether a regular file is there with this content; others are not read."""
    try:
        with open_regular(path) as stream:
            return os.fstat(stream.fileno()).st_size == len(data) and stream.read(len(data)) == data
    except OSError:
        return False


def parse_json(text: str | bytes) -> Any:
    """Parse JSON of at most 100 levels, so that whatever looks at the value can recurse.

    What is not, is not UTF-8, nested deeper, has a whole number of more than 100 digits or more
    values than `MAX_VALUES`, is a ``ValueError``.

    >>> parse_json(b'{"modules": []}')
    {'modules': []}
    """
    if len(text) > MAX_VALUES and _value_count(text) > MAX_VALUES:
        raise ValueError(f"expected at most {MAX_VALUES} values, found more")
    level = []
    with suppress(RecursionError):
        value = json.loads(text, parse_int=_whole_number)
        level = [value]
        for _ in range(MAX_LEVELS):
            level = [each for outer in level for each in _inside(outer)]
            if not level:
                return value
    raise ValueError(f"expected at most {MAX_LEVELS} levels, found more")


def _value_count(text: str | bytes) -> int:
    """The most values that a text of JSON can have, of which an object counts as five."""
    if isinstance(text, str):
        return text.count("[") + 5 * text.count("{") + text.count(",")
    return text.count(b"[") + 5 * text.count(b"{") + text.count(b",")


Shape: TypeAlias = "type | tuple[type, ...] | list[Shape] | dict[str, Shape]"
"""The shape of a JSON value: a type or several, a list of one shape, or the keys of an object.

The key ``*`` stands for all that are not named; a key that ends in ``?`` may be missing.
"""


def shaped(value: Any, shape: Shape, name: str = "") -> Any:
    """Return a value of JSON that has a shape; whole numbers pass as a ``float``, NaN does not.

    Args:
        value: as `parse_json` returns it.
        shape: what it should be.
        name: what it is called in messages.

    Raises:
        ValueError: it has another; the message names the place.

    >>> shaped({"a": {"b": [1, 2.5]}}, {"*": {"b": [float], "c?": str}})
    {'a': {'b': [1, 2.5]}}
    >>> shaped({"a": {"b": [1, "x"]}}, {"*": {"b": [float]}})
    Traceback (most recent call last):
    ValueError: a.b[1]: expected a number, found 'x'
    """
    where = f"{name}: " if name else ""
    kind = type(shape) if isinstance(shape, dict | list) else shape
    kinds = kind if isinstance(kind, tuple) else (kind,)
    is_number = type(value) is int or (type(value) is float and not math.isnan(value))
    if not any(is_number if each is float else type(value) is each for each in kinds):
        expected = " or ".join(_CALLED[each] for each in kinds)
        raise ValueError(f"{where}expected {expected}, found {brief(value)}")
    if isinstance(shape, list):
        for index, each in enumerate(value):
            shaped(each, shape[0], f"{name}[{index}]")
    elif isinstance(shape, dict):
        before = f"{name}." if name else ""
        named = {key.removesuffix("?"): (key, each) for key, each in shape.items() if key != "*"}
        for key, (written, each) in named.items():
            if key in value:
                shaped(value[key], each, f"{before}{key}")
            elif not written.endswith("?"):
                raise ValueError(f"{where}expected {key!r}, found none")
        for key in value.keys() - named.keys() if "*" in shape else ():
            shaped(value[key], shape["*"], f"{before}{brief(key)[1:-1]}")
    return value


def _whole_number(text: str) -> int:
    if len(text) > MAX_DIGITS:
        found = f"{text[:16]}... of {len(text)}"
        raise ValueError(f"expected whole numbers of at most {MAX_DIGITS} digits, found {found}")
    return int(text)


def _inside(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        yield from value.values()
    elif isinstance(value, list):
        yield from value


def reason_of(error: Exception) -> str:
    """Why something failed, without the number and the name that the system's errors begin with.

    >>> reason_of(FileNotFoundError(errno.ENOENT, "No such file or directory", "a.o"))
    'No such file or directory'
    """
    return error.strerror if isinstance(error, OSError) and error.strerror else str(error)
